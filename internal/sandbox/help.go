package sandbox

// Help explains the sandbox to a person at a terminal. It is also served at /_sandbox/help.
const Help = `Upstreams
  POST /v3/mandates, POST /api/v2/mandates     enroll (Authorization: Bearer, portal_key)
  GET  /v3/mandates/transactions               transaction list
  POST /api/v0/messages                        send (X-API-Key)
  GET  /api/v0/logs, GET /api/v0/user          sending log, account

Pages
  /                 what was accepted, refused and made to fail, and every enrollment
  /calls            the last 200 calls, with what was asked and answered
  /enroll/<token>   the url of an enrollment: approve, decline, cancel, or let it expire
  /mail             sent mail: subject, recipients, status

Control, JSON over HTTP
  POST   /_sandbox/faults        add a fault
  GET    /_sandbox/faults        current faults, how often each applied and fired
  DELETE /_sandbox/faults        clear them
  GET    /_sandbox/settings
  PUT    /_sandbox/settings      change the settings that are named
  GET    /_sandbox/oracle        what was really done; ?summary=1
  POST   /_sandbox/decide        {"order_number":"DD1","decision":"approve|decline|cancel|expire"};
                                 "end", "resume": its mandate, later
  POST   /_sandbox/cycle         deductions of the next cycle; {"bounced":["DD1"]}: those fail
  GET    /_sandbox/help          this text

Faults: {"operation":…,"kind":…}; the first that applies fires
  operation      enroll, transactions, send, logs, account, or * for any
  times          how often it fires; 0 is until cleared
  share, seed    chance that it fires on a call, 0 to 1, and its seed
  skip           calls that pass before the first one fails
  match          only calls whose body or query contains this text, or number
 kinds
  delay          wait "delay":"2s", then do the work, even when the caller is gone
  delay_answer   done, then wait "delay" before the answer
  status         nothing done, answer "status", "body", "headers"
  cut            nothing done, connection reset
  accept_cut     done, connection reset without an answer
  accept_status  done, answer "status", "body", "headers"
  truncate       done, half of the answer's body under its full Content-Length
  garbage        done, a 200 with an unreadable body
  accept_empty   done, an answer without url, total_recipient or data
  short          send: only the first "accept" recipients, or half, are accepted

Settings (durations are text, "1.5s")
  latency                        of every call
  channel_disabled               enrollments are refused with 403
  list_delay                     from a decision to its state in the transaction list
  callback_wait                  between two tries of a callback
  callback_copies                how often each callback is sent
  callback_lost                  share of decisions without a callback
  callback_forged                share of decisions preceded by a forged one
  quota, suspended               of the mail account: refused with 402, 403
  log_order                      newest, oldest, none
  log_delay, log_spread          from acceptance to the first row; over which the rows are spread
  log_cap                        maximum rows of a page
  log_forms                      rows in any documented form
  log_losses, log_late           chance before each page that a row is removed, or added late
  log_late_by                    maximum age of a late row
  share_deferred, deferred_for   share of 4xx replies; delivered later, in the same row
  share_bounced                  share of 5xx replies
A local part that contains "bounce" or "defer" always has that result.
`
