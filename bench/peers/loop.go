package main

import (
	"context"

	"github.com/nats-io/nats.go/jetstream"

	"errand/pkg/messages"
)

// loop is what a person would write in an afternoon with the upstream's document, nats.go and net/http. It checks
// nothing, logs nothing, keeps no history, and calls again after a crash. Prefetch and connection pool are configured
// well, since that person may know about them.
type loop struct {
	peer `embed:""`
}

func (l *loop) Run(ctx context.Context) error {
	handle := l.handler()
	return l.work(ctx, func(js jetstream.JetStream, id string, request []byte) error {
		subject, event, err := handle(ctx, id, request)
		if err != nil {
			return err
		}
		_, err = js.Publish(ctx, subject, event)
		return err
	})
}

// fenced is the loop with a history and nothing else: it stores that a call begins before the call, and its outcome after it,
// each only if nothing else was stored for the request meanwhile. It shows what calls that happen once cost at least.
type fenced struct {
	peer `embed:""`
}

func (f *fenced) Run(ctx context.Context) error {
	handle := f.handler()
	return f.work(ctx, func(js jetstream.JetStream, id string, request []byte) error {
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
		subject, event, err := handle(ctx, id, request)
		if err != nil {
			return err
		}
		_, err = store(subject, event, begun)
		return err
	})
}
