package bus

import (
	"context"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"

	"errand/pkg/messages"
)

// Sent stores the record of a call, however long that takes. It is fenced by nothing:
// stored twice, it says the same twice. An error: the context ended, or the server
// takes no such message.
func (s EventStore) Sent(ctx context.Context, body messages.SentBody) error {
	e := messages.Event{Operation: messages.Log, State: messages.Sent, ID: messages.BatchID(body.RequestID, body.Batch), Body: &body}
	data, err := e.Encode()
	if err != nil {
		return err
	}
	m := &nats.Msg{Subject: e.Subject(), Data: data, Header: headerMaps.Get().(nats.Header)}
	defer recycle(m.Header)
	id := m.Subject + "." + strconv.FormatInt(body.Until.UnixMilli(), 10) // no two calls end at the same time
	e.Headers(m.Header, s.Source, id)
	m.Header[nats.MsgIdHdr] = []string{id}
	if err := s.Publisher.Keep(ctx, m); err != nil {
		return fmt.Errorf("bus: store %s: %w", m.Subject, err)
	}
	return nil
}
