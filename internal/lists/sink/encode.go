package sink

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"

	"errand/pkg/messages"
)

// roomForHeaders is more than an event's headers take.
const roomForHeaders = 4 << 10

// recipient is the header that says which recipient an event is about: see deliveries.StoredEvent.
const recipient = "Errand-Recipient"

// errUnencodable means that an event can never be published.
var errUnencodable = errors.New("an event cannot be encoded")

// encoder makes the messages of events, one after the other in the same memory: the connection copies them.
type encoder struct {
	source string       // ce-source
	limit  func() int64 // bytes of the largest message that the server takes

	identify func(messages.Event) (id, note string) // see Events
	message  nats.Msg
	body     []byte
}

// encode makes the message of an event, valid until the next call. The fence keeps it single without a Nats-Msg-Id.
func (c *encoder) encode(e messages.Event) (*nats.Msg, error) {
	id, note := c.identify(e)
	if id == "" {
		return nil, fmt.Errorf("%w: %s is not an event of this list", errUnencodable, e.Type())
	}
	err := c.encodeBody(e)
	for err == nil && int64(len(c.body))+roomForHeaders > c.limit() && messages.Abridge(e.Body) {
		err = c.encodeBody(e)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUnencodable, err)
	}
	m := &c.message
	if m.Header == nil {
		m.Header = nats.Header{}
	}
	clear(m.Header)
	m.Subject, m.Reply, m.Data = e.Subject(), "", c.body
	e.Headers(m.Header, c.source, id)
	if note != "" {
		m.Header[recipient] = []string{note}
	}
	return m, nil
}

const eventID = "ce-id"

func (c *encoder) encodeBody(e messages.Event) (err error) {
	if b, ok := e.Body.(*messages.DeliveryBody); ok {
		c.body, err = appendDelivery(c.body[:0], b)
	} else {
		c.body, err = e.Encode()
	}
	return err
}

// appendDelivery appends what Encode returns for such an event, in a fifth of the time: the row is known to be valid JSON.
func appendDelivery(to []byte, b *messages.DeliveryBody) ([]byte, error) {
	at, err := b.At.MarshalJSON()
	if err != nil {
		return to, err
	}
	to = appendText(append(to, `{"request_id":`...), b.RequestID)
	to = append(append(to, `,"at":`...), at...)
	to = strconv.AppendInt(append(to, `,"attempt":`...), int64(b.Attempt), 10)
	if b.Abridged {
		to = append(to, `,"abridged":true`...)
	}
	to = appendText(append(to, `,"event_id":`...), b.EventID)
	if to, err = appendRow(append(to, `,"entry":`...), b.Entry); err != nil {
		return to, err
	}
	to = strconv.AppendInt(append(to, `,"smtp":{"code":`...), int64(b.SMTP.Code), 10)
	to = appendText(append(to, `,"enhanced":`...), messages.Cut(b.SMTP.Enhanced))
	to = appendText(append(to, `},"match":{"confidence":`...), string(b.Match.Confidence))
	if b.Match.Batch != 0 {
		to = strconv.AppendInt(append(to, `,"batch":`...), int64(b.Match.Batch), 10)
	}
	for i, id := range b.Match.Candidates {
		if i == 0 {
			to = append(to, `,"candidates":[`...)
		} else {
			to = append(to, ',')
		}
		to = appendText(to, id)
	}
	if len(b.Match.Candidates) > 0 {
		to = append(to, ']')
	}
	return append(to, "}}"...), nil
}

// appendRow appends a row without the space between its tokens.
func appendRow(to []byte, row json.RawMessage) ([]byte, error) {
	if len(row) == 0 {
		return append(to, "null"...), nil
	}
	if !spaced(row) {
		return append(to, row...), nil
	}
	b := bytes.NewBuffer(to)
	if err := json.Compact(b, row); err != nil {
		return to, fmt.Errorf("sink: compact a row: %w", err)
	}
	return b.Bytes(), nil
}

// spaced reports whether there is space between the tokens of valid JSON.
func spaced(row []byte) bool {
	quoted := false
	for i := 0; i < len(row); i++ {
		switch c := row[i]; {
		case c == '"':
			quoted = !quoted
		case c == '\\':
			i++
		case c <= ' ' && !quoted:
			return true
		}
	}
	return false
}

// appendText appends a JSON string; encoding/json escapes what must be.
func appendText(to []byte, text string) []byte {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c >= 0x7f || c == '"' || c == '\\' {
			b := bytes.NewBuffer(to)
			enc := json.NewEncoder(b)
			enc.SetEscapeHTML(false)
			_ = enc.Encode(text) // a text always encodes
			return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
		}
	}
	return append(append(append(to, '"'), text...), '"')
}
