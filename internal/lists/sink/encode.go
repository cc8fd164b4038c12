package sink

import (
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"

	"errand/internal/lists/deliveries"
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
	source  string       // ce-source
	limit   func() int64 // bytes of the largest message that the server takes
	message nats.Msg
}

// encode makes the message of an event, valid until the next call. The fence keeps it single without a Nats-Msg-Id.
func (c *encoder) encode(e messages.Event) (*nats.Msg, error) {
	id, note := identify(e)
	if id == "" {
		return nil, fmt.Errorf("%w: %s is not an event of a list", errUnencodable, e.Type())
	}
	body, err := e.Encode()
	for err == nil && int64(len(body))+roomForHeaders > c.limit() && messages.Abridge(e.Body) {
		body, err = e.Encode()
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUnencodable, err)
	}
	m := &c.message
	if m.Header == nil {
		m.Header = nats.Header{}
	}
	clear(m.Header)
	m.Subject, m.Reply, m.Data = e.Subject(), "", body
	e.Headers(m.Header, c.source, id)
	if note != "" {
		m.Header[recipient] = []string{note}
	}
	return m, nil
}

const eventID = "ce-id"

// identify returns the ce-id of an event, "" for one that is not of a list, and its header Errand-Recipient. Learn
// recognizes a row by its ce-id.
func identify(e messages.Event) (id, note string) {
	switch b := e.Body.(type) {
	case *messages.DeliveryBody:
		return b.EventID, b.Recipient
	case *messages.TransactionBody:
		return b.EventID, ""
	case *messages.OverdueBody:
		note = deliveries.Place(b.Batch, b.Recipient)
		return e.Subject() + "." + note, note
	case *messages.SummaryBody:
		return deliveries.NoteOf(e), ""
	case *messages.Watermark:
		return fmt.Sprintf("%s.%d.%d", e.Type(), b.CompleteThrough.UnixMilli(), b.At.UnixMilli()), ""
	}
	return "", ""
}
