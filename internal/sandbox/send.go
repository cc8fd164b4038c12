package sandbox

import (
	"fmt"
	"net/http"
	"net/mail"
	"slices"
	"strings"
	"time"
)

// defaultFrom is used when a message names no sender.
const defaultFrom = "no-reply@sandbox.test"

// submission is a message as it was posted, without its content.
type submission struct {
	from, subject string // from is the bare address
	to            addresses
}

// send accepts a message for all its recipients or for none, and queues it. It is logged when the outbound server sent it.
func (s *Sandbox) send(c *call) answer {
	posted, problem := parseSubmission(c.body)
	if problem != "" {
		return refusal(http.StatusUnprocessableEntity, problem)
	}
	if c.Suspended {
		return refusal(http.StatusForbidden, "The account is suspended.")
	}
	asked := posted.to.len()
	if c.short != nil {
		posted.to = posted.to.first(c.short.accepted(asked))
	}
	if !s.outbox.accept(&posted, asked, c.Settings, s.o.Lean, time.Now()) {
		return refusal(http.StatusPaymentRequired, "The sending quota is exhausted.")
	}
	return envelope(fmt.Appendf(nil, `{"total_recipient":%d}`, posted.to.len()))
}

// parseSubmission reads a message and checks it against the email document. problem is empty for a valid one.
func parseSubmission(body string) (l submission, problem string) {
	fields := make(map[string]string, 8)
	for name, raw := range members(body) {
		if raw != "null" && raw != `""` {
			fields[name] = raw
		}
	}
	for _, name := range [...]string{"to", "subject", "as_html", "content"} {
		if fields[name] == "" {
			return l, "The " + name + " field is required."
		}
	}
	for _, name := range [...]string{"from", "reply_to", "unsubscribe_link", "subject", "content"} {
		if raw := fields[name]; raw != "" && raw[0] != '"' {
			return l, "The " + name + " must be a string."
		}
	}
	if as := fields["as_html"]; as != "0" && as != "1" {
		return l, "The as_html must be 0 or 1."
	}
	l.from = defaultFrom
	if raw := fields["from"]; raw != "" {
		if l.from, problem = sender("from", raw); problem != "" {
			return l, problem
		}
	}
	if raw := fields["reply_to"]; raw != "" {
		if _, problem = sender("reply_to", raw); problem != "" {
			return l, problem
		}
	}
	if raw := fields["unsubscribe_link"]; raw != "" && !isLink(unquote(raw)) {
		return l, "The unsubscribe_link must be a URL."
	}
	if raw := fields["headers"]; raw != "" {
		if problem = extraHeaders(raw); problem != "" {
			return l, "The headers " + problem
		}
	}
	if l.to, problem = recipients(fields["to"]); problem != "" {
		return l, "The to " + problem
	}
	l.subject, l.from = strings.Clone(unquote(fields["subject"])), strings.Clone(l.from)
	return l, ""
}

func sender(name, raw string) (address, problem string) {
	parsed, err := mail.ParseAddress(unquote(raw))
	if err != nil {
		return "", "The " + name + " must be an email address."
	}
	return parsed.Address, ""
}

// ownHeaders are made from the fields of a message; that additional headers must not replace them is assumed.
var ownHeaders = []string{"from", "to", "cc", "bcc", "subject", "reply-to", "return-path", "content-type", "content-transfer-encoding",
	"mime-version"}

// extraHeaders says what is wrong with `headers`. The document does not show the format: an object of strings and a list of
// "Name: value" are accepted.
func extraHeaders(raw string) string {
	switch raw[0] {
	case '{':
		for name, value := range members(raw) {
			if value[0] != '"' {
				return "must hold strings."
			}
			if problem := extraHeader(name, unquote(value)); problem != "" {
				return problem
			}
		}
	case '[':
		for element := range elements(raw) {
			if element[0] != '"' {
				return "must hold strings."
			}
			name, value, found := strings.Cut(unquote(element), ":")
			if !found {
				return `must be written "Name: value".`
			}
			if problem := extraHeader(name, value); problem != "" {
				return problem
			}
		}
	default:
		return "must be an object or a list."
	}
	return ""
}

func extraHeader(name, value string) string {
	if name == "" || strings.ContainsAny(name, "\r\n: ") || strings.ContainsAny(value, "\r\n") {
		return "must be one line each."
	}
	if slices.Contains(ownHeaders, strings.ToLower(name)) {
		return "must not name a header that the message has already."
	}
	return ""
}

// envelope wraps data in the format of all answers of the email service.
func envelope(data []byte) answer {
	body := append(make([]byte, 0, len(data)+64), `{"error":false,"status_code":200,"message":"OK","data":`...)
	return answer{status: http.StatusOK, body: append(append(body, data...), '}')}
}

// refusal is the envelope of a refused call, with the HTTP status. The upstream shows no error answers; assumed.
func refusal(status int, text string) answer {
	body := appendText(fmt.Appendf(nil, `{"error":true,"status_code":%d,"message":`, status), text)
	return answer{status: status, body: append(body, `,"data":{}}`...)}
}

// account answers the user operation, also for a suspended account.
func (s *Sandbox) account(c *call) answer {
	used := s.outbox.used()
	body := append([]byte{'{'}, `"organisation":"Sandbox Organisation","email":"owner@sandbox.test",`...)
	body = fmt.Appendf(body, `"suspended":%t,"smtp_username":"sandbox","limit_quota":"%d","total_usage":%d,"credit_balance":%d}`,
		c.Suspended, c.Quota, used, max(0, c.Quota-used))
	return envelope(body)
}
