package bus

import (
	"context"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"

	"errand/internal/history"
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

// Concluded gives what the sending log last said of batch n of a request, a zero body
// when it said nothing. Errors: history.ErrCorrupt, or the context ended.
func (s EventStore) Concluded(ctx context.Context, request string, n int) (messages.ConcludedBody, error) {
	var body messages.ConcludedBody
	subject := messages.Log.Subject(messages.Concluded, messages.BatchID(request, n))
	e, err := s.Last(ctx, messages.Delivery, subject) // they share a stream
	if err != nil || e.Sequence == 0 {
		return body, err
	}
	if messages.DecodeEvent(e.Body, &body) != nil {
		return messages.ConcludedBody{}, fmt.Errorf("bus: read %s: %w: sequence %d", subject, history.ErrCorrupt, e.Sequence)
	}
	return body, nil
}
