package consumer

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go"

	"errand/internal/bus"
	"errand/internal/requests/hold"
)

// takers is how many goroutines take requests. While the operation is held, one probes; the other continues at its end.
const takers = 2

type queue struct {
	pulling hold.Slots // of the taker that uses pull
	pull    *bus.Pull
	probes  *bus.Pull // of the taker with the permit of a probe
	work    chan<- *nats.Msg
	more    bool // the last pull brought as many as were asked for
}

// take takes as many requests as workers are free, or makes a probe. None waits in a buffer, where its AckWait would run out.
func (c *Consumer[R]) take(ctx, hard context.Context, q *queue) error {
	permit, err := c.hold.Acquire(ctx)
	if err != nil {
		return err
	}
	if !permit.Probe() {
		return c.takeForWorkers(ctx, permit, q)
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

// takeForWorkers passes requests to the workers. An empty queue is asked for one request until there is one: so it
// keeps one worker from the program's other queues, and they never keep that worker from it.
func (c *Consumer[R]) takeForWorkers(ctx context.Context, permit *hold.Permit, q *queue) error {
	if err := q.pulling.Take(ctx); err != nil {
		return err
	}
	defer q.pulling.Free()
	c.large.wait()
	n := 1
	if q.more {
		n = q.pull.Max
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
		c.large.expect(m)
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
