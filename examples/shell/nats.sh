#!/bin/sh
# The same with the nats tool, without checks and without waiting. `nats pub` says "Duplicate: true" for one.
set -e
nats pub --jetstream mail.send.requested \
  '{"request_id":"send-greeting-1","to":["ann@example.com"],"subject":"Hello","content":"See you at noon."}'
nats stream get MAIL_EVENTS --last-for 'mail.send.*.send-greeting-1'
