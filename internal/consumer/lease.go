package consumer

import (
	"context"
	"sync"
	"time"

	"errand/internal/bus"
)

// lease keeps the messages in hand from being delivered to somebody else: one
// heartbeat for all of them at a third of AckWait.
type lease struct {
	mu   sync.Mutex
	held map[*bus.Request]struct{}
}

func (l *lease) take(m *bus.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held == nil {
		l.held = map[*bus.Request]struct{}{}
	}
	l.held[m] = struct{}{}
}

func (l *lease) drop(m *bus.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.held, m)
}

func (l *lease) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.held)
}

// keep beats until ctx ends.
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
			_ = m.InProgress() // a lost beat is made good by the next one
		}
		l.mu.Unlock()
	}
}
