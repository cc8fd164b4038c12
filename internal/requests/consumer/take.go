package consumer

import (
	"context"
	"errors"
	"sync"
	"time"

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

// probe settles requests of a held operation until the probe's call was made. A request that made no call has proven
// nothing; one that is overdue may end without a call. The error is why the queue had none.
func (c *Consumer[R]) probe(ctx, hard context.Context, p *bus.Pull, permit *hold.Permit) error {
	for {
		d, err := c.choose(ctx, p, permit)
		if d == nil {
			return err
		}
		if permit.Spent() && time.Now().Before(d.giveUp) {
			c.passOver(d)
			return nil
		}
		c.settle(hard, d)
		if !c.hold.Active() {
			return nil
		}
	}
}

// maxPassedOver is how many requests a probe passes over that were probes already: a hold of a day makes as many.
const maxPassedOver = 10_000

// choose takes the first request that was not yet a probe of this hold or, if the queue has no
// other, the first that was.
func (c *Consumer[R]) choose(ctx context.Context, p *bus.Pull, permit *hold.Permit) (*delivery[R], error) {
	var again *delivery[R]
	for range maxPassedOver {
		var m *nats.Msg
		var err error
		if again == nil && !permit.Spent() {
			m, err = p.Next(ctx, 2*c.hold.Interval)
		} else {
			m, err = p.Take(ctx)
		}
		if err != nil && again != nil {
			break
		}
		if err != nil {
			return nil, err
		}
		d := c.open(m, permit)
		switch {
		case d == nil:
			c.passOver(again)
			return nil, nil
		case permit.Admit(d.ids[0]):
			c.passOver(again)
			return d, nil
		case again == nil:
			again = d
		default:
			c.passOver(d)
		}
	}
	permit.AdmitAgain(again.ids[0])
	return again, nil
}

// passOver gives back a request that may not be worked on now. It returns before the next probe is due.
func (c *Consumer[R]) passOver(d *delivery[R]) {
	if d != nil {
		c.lease.drop(d.message)
		_ = d.message.NakWithDelay(c.hold.Interval / 2)
	}
}

// empty reports whether the queue is known to have no request at all, neither deferred nor with another worker.
func (c *Consumer[R]) empty(ctx context.Context) bool {
	info, err := c.source.Info(ctx)
	return err == nil && info.NumPending == 0 && info.NumAckPending == 0
}
