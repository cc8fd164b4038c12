package mail

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"errand/pkg/clients"
)

// MaxRecipients is the document's limit for one submission.
const MaxRecipients = 1000

type sent struct {
	TotalRecipient json.Number `json:"total_recipient"`
}

// Send submits the message to 1 to 1000 recipients and returns the number of recipients accepted as the upstream says, which may differ
// from the number sent. Any other number of recipients is refused without a call. A 2xx without total_recipient is of unknown fate.
func (c *Client) Send(ctx context.Context, m Encoded, to []string) (accepted int, err error) {
	if len(to) == 0 || len(to) > MaxRecipients {
		return 0, clients.Refusal(submission, "to", "must hold 1 to 1000 recipients")
	}
	if len(m.static) == 0 {
		return 0, clients.Refusal(submission, "body", "the message was not encoded")
	}
	call := clients.Request{
		Operation: submission, Method: http.MethodPost, Path: "/api/v0/messages", Body: m.body(to, c.headersAsList),
	}
	err = c.upstream.Exchange(ctx, call, func(status int, body []byte) clients.Reading {
		return readSent(status, body, &accepted)
	})
	if err != nil {
		return 0, err
	}
	return accepted, nil
}

func readSent(status int, body []byte, accepted *int) clients.Reading {
	return open(status, body, func(data sent) bool {
		n, err := strconv.Atoi(string(data.TotalRecipient))
		*accepted = n
		return err == nil && n >= 0
	})
}

// Message is the document's message without its recipients.
type Message struct {
	From            string            // optional, the upstream has a default
	ReplyTo         string            // optional
	UnsubscribeLink string            // optional
	Subject         string            //
	Content         string            // plain text or HTML
	AsHTML          int               // 1: Content is HTML
	Headers         map[string]string // optional, further mail headers
}

// Encoded is a message made ready to be sent to any number of batches. The zero value is refused by Send.
type Encoded struct {
	static      []byte // the JSON object up to the headers, not closed
	headers     []byte // the headers as an object, empty if there are none
	headersList []byte // the headers as a list of lines
}

// operation of the submission in calls and errors.
const submission = "send"

// The upstream writes these itself, or servers on the way do, and the first five decide who gets the message.
var ownHeaders = []string{
	"from", "to", "cc", "bcc", "reply-to", "subject", "return-path", "sender", "message-id", "received", "dkim-signature",
	"content-type", "content-transfer-encoding", "mime-version",
}

// Encode checks the headers and encodes what all batches share, once. A header that breaks a rule is a *clients.Error of fate
// Refused.
func Encode(m Message) (Encoded, error) {
	for name, value := range m.Headers {
		if rule := headerRule(name, value); rule != "" {
			return Encoded{}, clients.Refusal(submission, "headers", rule)
		}
	}
	static, err := encode(struct {
		From            string `json:"from,omitempty"`
		ReplyTo         string `json:"reply_to,omitempty"`
		UnsubscribeLink string `json:"unsubscribe_link,omitempty"`
		Subject         string `json:"subject"`
		AsHTML          int    `json:"as_html"`
		Content         string `json:"content"`
	}{m.From, m.ReplyTo, m.UnsubscribeLink, m.Subject, m.AsHTML, m.Content})
	if err != nil || len(m.Headers) == 0 {
		return Encoded{static: bytes.TrimSuffix(static, []byte("}"))}, err
	}
	headers, err := encode(m.Headers)
	if err != nil {
		return Encoded{}, err
	}
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(m.Headers)) {
		lines = append(lines, name+": "+m.Headers[name])
	}
	list, err := encode(lines)
	return Encoded{static: bytes.TrimSuffix(static, []byte("}")), headers: headers, headersList: list}, err
}

// headerRule is the rule that a header breaks.
func headerRule(name, value string) string {
	for _, b := range []byte(name) {
		if b <= ' ' || b >= 0x7f || b == ':' {
			return "a name holds a character that is not allowed in one"
		}
	}
	switch {
	case name == "":
		return "a name is empty"
	case strings.ContainsAny(value, "\r\n\x00"):
		return "a value holds a line break"
	case slices.Contains(ownHeaders, strings.ToLower(name)), strings.HasPrefix(strings.ToLower(name), "resent-"):
		return "a name belongs to a field of the message or is written by the service"
	}
	return ""
}

// body is the request for these recipients.
func (e Encoded) body(to []string, headersAsList bool) []byte {
	headers := e.headers
	if headersAsList {
		headers = e.headersList
	}
	size := len(e.static) + len(headers) + 32
	for _, address := range to {
		size += len(address) + 4
	}
	b := append(make([]byte, 0, size), e.static...)
	if len(headers) > 0 {
		b = append(append(b, `,"headers":`...), headers...)
	}
	b = append(b, `,"to":[`...)
	for i, address := range to {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendText(b, address)
	}
	return append(b, "]}"...)
}

// appendText appends a JSON string; an ordinary address needs no encoder.
func appendText(b []byte, text string) []byte {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c >= 0x7f || c == '"' || c == '\\' {
			encoded, _ := encode(text) // a string always encodes
			return append(b, encoded...)
		}
	}
	b = append(b, '"')
	b = append(b, text...)
	return append(b, '"')
}

// encode returns JSON without escapes for HTML: content is often HTML, and would grow by half.
func encode(value any) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return nil, err
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}
