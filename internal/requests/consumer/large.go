package consumer

import (
	"context"
	"sync"

	"github.com/nats-io/nats.go"

	"errand/internal/requests/hold"
	"errand/internal/retry"
)

// largeUnit is what the bytes of large requests are counted in. A smaller request is not
// counted: all that may be in flight together are few bytes.
const largeUnit = 64 << 10

// largeUnits bounds the bytes of the large requests in flight, 16 MiB: a request needs
// several times its bytes while it is processed.
const largeUnits = 256

// large is the room that large requests share. While one that finds none waits, no more are
// taken.
type large struct {
	waiting *sync.WaitGroup
	turn    hold.Slots // of whoever takes units: two that each have a part would wait forever
	units   hold.Slots
}

func newLarge() large {
	return large{new(sync.WaitGroup), make(hold.Slots, 1), make(hold.Slots, largeUnits)}
}

// take waits until there is room for a request of so many bytes; one that is larger than
// all room takes all of it. The units that it returns are to be freed.
func (l large) take(ctx context.Context, bytes int) (units int, err error) {
	if bytes < largeUnit {
		return 0, nil
	}
	want := min((bytes+largeUnit-1)/largeUnit, cap(l.units))
	if err := l.turn.Take(ctx); err != nil {
		return 0, err
	}
	defer l.turn.Free()
	for n := range want {
		if err := l.units.Take(ctx); err != nil {
			l.free(n)
			return 0, err
		}
	}
	return want, nil
}

func (l large) free(units int) {
	for range units {
		l.units.Free()
	}
}

// comes is called with a request that a worker is about to get.
func (l large) comes(m *nats.Msg) {
	if len(m.Data) >= largeUnit {
		l.waiting.Add(1)
	}
}

// wait waits until every request that came has its room.
func (l large) wait() { l.waiting.Wait() }

// admitLarge waits, with its lease kept, until there is room for a request. One that has
// none when the program ends goes back to the queue.
func (c *Consumer[R]) admitLarge(ctx context.Context, m *nats.Msg) (units int, err error) {
	if len(m.Data) < largeUnit {
		return 0, nil
	}
	defer c.large.waiting.Done()
	c.lease.take(m)
	defer c.lease.drop(m)
	if units, err = c.large.take(ctx, len(m.Data)); err != nil {
		_ = m.NakWithDelay(retry.PullExpiry) // or one of our own pulls has it again
	}
	return units, err
}
