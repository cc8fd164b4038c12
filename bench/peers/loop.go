package main

import (
	"context"
	"errors"
	"sync"
	"time"

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
	var workers sync.WaitGroup
	failed := make(chan error, l.Concurrency)
	for range l.Concurrency {
		workers.Go(func() {
			if err := work(ctx, js, messages, handle); ctx.Err() == nil {
				failed <- err
			}
		})
	}
	select {
	case err = <-failed:
	case <-ctx.Done():
	}
	messages.Stop()
	workers.Wait()
	return errors.Join(err, nc.FlushTimeout(2*time.Second)) // the last acknowledgements
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
