package main

import (
	"context"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/pkg/messages"
)

// fenced is the loop with a history and nothing else: it stores that a call begins before the call, and its outcome after it,
// each only if nothing else was stored for the request meanwhile. It shows what calls that happen once cost at least.
type fenced struct {
	peer `embed:""`
}

func (f *fenced) Run(ctx context.Context) error {
	nc, js, source, err := f.connect(ctx)
	if err != nil {
		return err
	}
	defer nc.Close()
	requests, err := source.Messages(jetstream.PullMaxMessages(2 * f.Concurrency))
	if err != nil {
		return err
	}
	handle := f.handler()
	return f.run(ctx, nc, requests, func() error { return workFenced(ctx, js, requests, handle) })
}

func workFenced(ctx context.Context, js jetstream.JetStream, requests jetstream.MessagesContext, handle handler) error {
	for {
		m, err := requests.Next()
		if err != nil {
			return err
		}
		id := m.Headers().Get(nats.MsgIdHdr)
		store := func(subject string, event []byte, after uint64) (uint64, error) {
			stored, err := js.Publish(ctx, subject, event, jetstream.WithExpectLastSequenceForSubject(after, messages.Enroll.Filter(id)))
			if err != nil {
				return 0, err
			}
			return stored.Sequence, nil
		}
		begun, err := store(messages.Enroll.Subject(messages.Started, id), []byte(`{"request_id":"`+id+`"}`), 0)
		if err != nil {
			return err
		}
		subject, event, err := handle(ctx, id, m.Data())
		if err != nil {
			return err
		}
		if _, err := store(subject, event, begun); err != nil {
			return err
		}
		if err := m.Ack(); err != nil {
			return err
		}
	}
}
