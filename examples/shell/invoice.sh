#!/bin/sh
# Sends one invoice by mail and says what became of it.
#
#     invoice.sh ID ADDRESS [SUBJECT]
#
# NATS_URL, NATS_USER and NATS_PASSWORD say how to reach NATS. What went wrong is on standard error; with -o json
# the final event is on standard output.
id=${1:?usage: invoice.sh ID ADDRESS [SUBJECT]} address=${2:?}

errand publish mail.send.requested --wait -o json \
    --field request_id="$id" --field to="$address" --field subject="${3:-Your invoice}" \
    --field content='Dear customer, …' >/dev/null
status=$?
case $status in
0) echo sent ;;
1) echo 'failed, or not published: see above' ;; # a conflict too
2) echo 'it breaks a rule, and was not published' ;;
3) echo 'uncertain: do not send it again under another id' ;;
4) echo 'no outcome yet: it goes on; run this again to see it' ;;
esac
exit $status
