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

	"errand/internal/wire"
	"errand/pkg/clients"
	"errand/pkg/messages"
)

type sent struct {
	TotalRecipient json.Number `json:"total_recipient"`
}

// Send submits the message to 1 to 1000 recipients and returns the number of recipients accepted as the upstream says, which may differ
// from the number sent. Any other number of recipients is refused without a call. A 2xx without total_recipient is of unknown fate.
func (c *Client) Send(ctx context.Context, m Encoded, to []string) (accepted int, err error) {
	if len(to) == 0 || len(to) > messages.MaxBatch {
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

// Encode checks the headers and encodes what all batches share, once. A header that breaks a rule is a *clients.Error of fate
// Refused.
func Encode(m Message) (Encoded, error) {
	for name, value := range m.Headers {
		rule := wire.HeaderFault(name)
		if rule == "" && strings.ContainsAny(value, "\r\n\x00") {
			rule = "must not hold line breaks"
		}
		if rule != "" {
			return Encoded{}, clients.Refusal(submission, "headers", "one "+rule)
		}
	}
	static, err := wire.Marshal(struct {
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
	headers, err := wire.Marshal(m.Headers)
	if err != nil {
		return Encoded{}, err
	}
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(m.Headers)) {
		lines = append(lines, name+": "+m.Headers[name])
	}
	list, err := wire.Marshal(lines)
	return Encoded{static: bytes.TrimSuffix(static, []byte("}")), headers: headers, headersList: list}, err
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
		b = wire.AppendString(b, address)
	}
	return append(b, "]}"...)
}
