package consumer

import (
	"context"
	"sync"

	"errand/internal/bus"
	"errand/internal/requests/hold"
	"errand/internal/retry"
)

// largeUnit is what the bytes of large requests are counted in. Smaller ones are not counted: all in flight are few.
const largeUnit = 64 << 10

// largeUnits bounds the bytes of large requests in flight, 16 MiB: processing needs several times a request's bytes.
const largeUnits = 256

// large is the memory that large requests share. While one of them waits for its part, no more requests are taken.
type large struct {
	waiting *sync.WaitGroup
	taking  hold.Slots // of one request at a time: two that each have a part would wait forever
	units   hold.Slots
}

func newLarge() large {
	return large{new(sync.WaitGroup), make(hold.Slots, 1), make(hold.Slots, largeUnits)}
}

// take waits for room for a request of so many bytes, at most all the room. The caller frees the returned units.
func (l large) take(ctx context.Context, bytes int) (units int, err error) {
	if bytes < largeUnit {
		return 0, nil
	}
	want := min((bytes+largeUnit-1)/largeUnit, cap(l.units))
	if err := l.taking.Take(ctx); err != nil {
		return 0, err
	}
	defer l.taking.Free()
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

// expect is called with a request before a worker gets it.
func (l large) expect(r *bus.Request) {
	if len(r.Data) >= largeUnit {
		l.waiting.Add(1)
	}
}

// wait waits until every expected request has its room.
func (l large) wait() { l.waiting.Wait() }

// admitLarge waits for room for a request, and keeps its lease. When the program ends first, the request goes back.
func (c *Consumer[R]) admitLarge(ctx context.Context, r *bus.Request) (units int, err error) {
	if len(r.Data) < largeUnit {
		return 0, nil
	}
	defer c.large.waiting.Done()
	c.lease.take(r)
	defer c.lease.drop(r)
	if units, err = c.large.take(ctx, len(r.Data)); err != nil {
		_ = r.NakWithDelay(retry.PullExpiry) // or one of our own pulls has it again
	}
	return units, err
}
