package main

import (
	"context"

	"github.com/nats-io/nats.go"
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
	do := func(js jetstream.JetStream, m jetstream.Msg) error {
		subject, event, err := handle(ctx, m.Headers().Get(nats.MsgIdHdr), m.Data())
		if err != nil {
			return err
		}
		_, err = js.Publish(ctx, subject, event)
		return err
	}
	return l.work(ctx, 2, func() func(jetstream.JetStream, jetstream.Msg) error { return do })
}

// fenced is the loop with a history and nothing else: it stores that a call begins before the call, and its outcome after it,
// each only if nothing else was stored for the request meanwhile. It shows what calls that happen once cost at least.
type fenced struct {
	peer `embed:""`
}

func (f *fenced) Run(ctx context.Context) error {
	handle := f.handler()
	do := func(js jetstream.JetStream, m jetstream.Msg) error {
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
		_, err = store(subject, event, begun)
		return err
	}
	return f.work(ctx, 2, func() func(jetstream.JetStream, jetstream.Msg) error { return do })
}
