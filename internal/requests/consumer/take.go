package consumer

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go"

	"errand/internal/bus"
	"errand/internal/requests/hold"
)

// takers is how many goroutines take requests, one at a time. While the operation is held one
// of them probes, and the other goes on as soon as a call under way ends the hold.
const takers = 2

// queue is where they take them from, and what they share.
type queue struct {
	turn   hold.Slots // of whoever asks
	pull   *bus.Pull  // with the turn
	probes *bus.Pull  // with the permit of a probe
	work   chan<- *nats.Msg
	more   bool // the last time there were some
}

// next takes the requests that are there, as many as workers are free, or is a probe. None
// waits in a buffer, where its AckWait would run out. The error is why there was none.
func (c *Consumer[R]) next(ctx, hard context.Context, q *queue) error {
	permit, err := c.hold.Acquire(ctx)
	if err != nil {
		return err
	}
	if !permit.Probe() {
		return c.some(ctx, permit, q)
	}
	if err := c.InFlight.Take(ctx); err != nil {
		permit.Release()
		return err
	}
	defer c.InFlight.Free()
	err = c.probe(ctx, hard, q.probes, permit)
	permit.Unused(errors.Is(err, bus.ErrNoMessage) && c.empty(ctx))
	return err
}

// some hands requests to the workers. A queue that has nothing is asked for one until there is
// one, so that it keeps one worker from the program's other queues, and they never keep that
// one from it.
func (c *Consumer[R]) some(ctx context.Context, permit *hold.Permit, q *queue) error {
	if err := q.turn.Take(ctx); err != nil {
		return err
	}
	defer q.turn.Free()
	c.large.wait()
	n := 1
	if q.more {
		n = q.pull.Most
	}
	free, err := c.InFlight.TakeSome(ctx, n)
	if err != nil {
		return err
	}
	defer func() {
		for range free {
			c.InFlight.Free()
		}
	}()
	if permit.Spent() { // a hold began meanwhile
		return nil
	}
	asked := free
	give := func(m *nats.Msg) {
		if free > 0 {
			free--
		} else { // it was asked for before the connection was lost
			c.lease.take(m)
			c.InFlight <- struct{}{}
		}
		c.large.comes(m)
		q.work <- m
	}
	if q.more {
		err = q.pull.Some(ctx, asked, give)
	} else {
		var m *nats.Msg
		for err = bus.ErrNoMessage; errors.Is(err, bus.ErrNoMessage) && !permit.Spent(); {
			m, err = q.pull.Next(ctx, 0)
			if m != nil || errors.Is(err, bus.ErrNoMessage) {
				c.unhealthy("")
			}
		}
		if m != nil {
			give(m)
		}
	}
	q.more = free < asked
	return err
}
