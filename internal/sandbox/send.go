package sandbox

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/mail"
	"slices"
	"strconv"
	"strings"
	"time"
)

// defaultFrom is used when a message names no sender.
const defaultFrom = "no-reply@sandbox.test"

// submission is a message as it was posted, without its content.
type submission struct {
	from, subject string // from is the bare address
	to            []string
}

// send accepts a message for all its recipients or refuses it, and queues it. It is logged when the outbound server sent it.
func (s *Sandbox) send(c *call) answer {
	posted, problem := parseSubmission(c.body)
	if problem != "" {
		return refusal(http.StatusUnprocessableEntity, problem)
	}
	if c.Suspended {
		return refusal(http.StatusForbidden, "The account is suspended.")
	}
	asked := len(posted.to)
	if c.short != nil {
		posted.to = posted.to[:c.short.accepted(asked)]
	}
	if !s.outbox.accept(&posted, asked, c.Settings, time.Now()) {
		return refusal(http.StatusPaymentRequired, "The sending quota is exhausted.")
	}
	return envelope(object("total_recipient", len(posted.to)))
}

// parseSubmission reads a message and checks it against the email document. problem is empty for a valid one.
func parseSubmission(body string) (l submission, problem string) {
	fields := members(body)
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
	l.subject = unquote(fields["subject"])
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
	var named map[string]any
	var lines []any
	switch {
	case json.Unmarshal([]byte(raw), &named) == nil:
	case json.Unmarshal([]byte(raw), &lines) == nil:
		named = map[string]any{}
		for _, line := range lines {
			text, _ := line.(string) // anything else has no colon
			name, value, found := strings.Cut(text, ":")
			if !found {
				return `must hold strings written "Name: value".`
			}
			named[name] = value
		}
	default:
		return "must be an object or a list."
	}
	for name, value := range named {
		text, ok := value.(string)
		if !ok {
			return "must hold strings."
		}
		if problem := extraHeader(name, text); problem != "" {
			return problem
		}
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
func envelope(data json.RawMessage) answer {
	return answer{status: http.StatusOK, body: object("error", false, "status_code", http.StatusOK, "message", "OK", "data", data)}
}

// refusal is the envelope of a refused call, with the HTTP status. The upstream shows no error answers; assumed.
func refusal(status int, text string) answer {
	return answer{status: status, body: object("error", true, "status_code", status, "message", text, "data", struct{}{})}
}

// account answers the user operation, also for a suspended account.
func (s *Sandbox) account(c *call) answer {
	used := s.outbox.used()
	return envelope(object("organisation", "Sandbox Organisation", "email", "owner@sandbox.test", "suspended", c.Suspended,
		"smtp_username", "sandbox", "limit_quota", strconv.FormatInt(c.Quota, 10), "total_usage", used,
		"credit_balance", max(0, c.Quota-used)))
}

// recipientLimit is the document's maximum of recipients in one request.
const recipientLimit = 1000

// recipients reads `to`: an array of strings or one string, each with one address or several separated by commas.
func recipients(raw string) (to []string, problem string) {
	texts := []string{unquote(raw)}
	if raw[0] != '"' && json.Unmarshal([]byte(raw), &texts) != nil {
		return nil, "must be a string or an array of strings."
	}
	for i, text := range texts {
		parsed, err := mail.ParseAddressList(text)
		if err != nil {
			return nil, fmt.Sprintf("text %d has something else than email addresses.", i+1)
		}
		for _, one := range parsed {
			to = append(to, one.Address)
		}
	}
	switch {
	case len(to) == 0:
		return nil, "field is required."
	case len(to) > recipientLimit:
		return nil, fmt.Sprintf("must not have more than %d recipients.", recipientLimit)
	}
	return to, ""
}

// domain is the part after the last @.
func domain(address string) string { return address[strings.LastIndexByte(address, '@')+1:] }

// sameDomain returns the address with its domain in lower case: domains are compared without case, local parts exactly.
func sameDomain(address string) string {
	at := len(address) - len(domain(address))
	return address[:at] + strings.ToLower(address[at:])
}
