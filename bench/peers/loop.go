package main

import (
	"context"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// loop is what a person would write in an afternoon with the upstream's document, nats.go and net/http. It checks
// nothing, logs nothing, keeps no history, and calls again after a crash. Prefetch and connection pool are configured
// well, since that person may know about them.
type loop struct {
	peer `embed:""`
}

func (l *loop) Run(ctx context.Context) error {
	nc, js, source, err := l.connect(ctx)
	if err != nil {
		return err
	}
	defer nc.Close()
	messages, err := source.Messages(jetstream.PullMaxMessages(2 * l.Concurrency))
	if err != nil {
		return err
	}
	handle := l.handler()
	return l.run(ctx, nc, messages, func() error { return work(ctx, js, messages, handle) })
}

// work does one request after the other until messages end.
func work(ctx context.Context, js jetstream.JetStream, messages jetstream.MessagesContext, handle handler) error {
	for {
		m, err := messages.Next()
		if err != nil {
			return err
		}
		subject, event, err := handle(ctx, m.Headers().Get(nats.MsgIdHdr), m.Data())
		if err != nil {
			return err
		}
		if _, err := js.Publish(ctx, subject, event); err != nil {
			return err
		}
		if err := m.Ack(); err != nil {
			return err
		}
	}
}
