package sandbox

// Help tells a person at a terminal how to use the sandbox. It is also served
// at /_sandbox/help.
const Help = `Upstreams
  POST /v3/mandates, POST /api/v2/mandates     enroll (Authorization: Bearer, portal_key)
  GET  /v3/mandates/transactions               transaction list
  POST /api/v0/messages                        send (X-API-Key)
  GET  /api/v0/logs, GET /api/v0/user          sending log, account

Pages
  /                 what happened, and every enrollment
  /enroll/<token>   where the payer approves, declines or cancels: the url of an enrollment
  /mail             mail sent: subject, recipients, status

Control, JSON over HTTP
  POST   /_sandbox/faults        add a fault or an array of them
  GET    /_sandbox/faults        faults in force, how often each was asked and fired
  DELETE /_sandbox/faults[?id=]  clear
  GET    /_sandbox/settings
  PUT    /_sandbox/settings      change those that are named
  POST   /_sandbox/reset         forget everything
  GET    /_sandbox/oracle        what was really done; ?summary=1 ?order_number= ?recipient= ?log=1
  POST   /_sandbox/log           put rows of other programs into the sending log; ?verbatim=1
  POST   /_sandbox/decide        {"order_number":"DD1","decision":"approve|decline|cancel"}
  GET    /_sandbox/help          this text

Faults: {"operation":…,"kind":…}; the first that applies fires
  operation      enroll, transactions, send, logs, account, or * for any
  times          how often; 0 is until cleared
  share, seed    of calls, 0 to 1, drawn for each
  skip           calls let pass first
  match          only calls whose body or query holds this text
 kinds
  delay          wait "delay":"2s", then do the work, even for a caller that left
  delay_answer   done, then wait "delay" with the answer
  status         nothing done, answer "status", "body", "headers"
  cut            nothing done, connection reset
  accept_cut     done, connection reset without an answer
  accept_status  done, answer "status", "body", "headers"
  truncate       done, half of the answer's body under its full Content-Length
  garbage        done, a 200 that nobody can read
  accept_empty   done, an answer without url, total_recipient or data
  short          send: only the first "accept" recipients, or half, are accepted

Settings (durations are text, "1.5s")
  latency                        of every call
  enroll_status                  HTTP status of an accepted enrollment
  channel_disabled               enrollments are refused with 403
  callback_wait                  between two tries of a callback
  quota, suspended               of the mail account: 402, 403
  log_order                      newest, oldest, none
  log_delay, log_spread          acceptance to first row; first row towards last row of a message
  log_cap                        most rows of a page
  status_text, wrong_total_page  oddities seen in the log
  total_off, no_totals           total_record is off by so many; there are no totals
  log_forms, log_cap_varies      rows in any form; pages of any size
  log_losses, log_late           chance before each page that a row goes, or comes in late
  log_late_by                    how old a late row is at most
  log_fixed                      a page has log_cap rows, whatever limit asks for
  log_cap_untold                 the answer's limit is the one asked for
  share_deferred, deferred_for   4xx reply first, delivered in the same row later
  share_bounced                  5xx reply
An address whose local part holds "bounce" or "defer" has that state for certain.
`
