package consumer

import (
	"context"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// lease keeps messages in flight from being delivered again: one heartbeat for all of them at a third of AckWait.
type lease struct {
	mu   sync.Mutex
	held map[*nats.Msg]struct{}
}

func (l *lease) take(m *nats.Msg) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held == nil {
		l.held = map[*nats.Msg]struct{}{}
	}
	l.held[m] = struct{}{}
}

func (l *lease) drop(m *nats.Msg) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.held, m)
}

func (l *lease) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.held)
}

func (l *lease) keep(ctx context.Context, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		l.mu.Lock()
		for m := range l.held {
			_ = m.InProgress() // the next beat makes up for a lost one
		}
		l.mu.Unlock()
	}
}
