package consumer

import (
	"context"
	"errors"
	"sync"
	"time"

	"errand/internal/bus"
	"errand/internal/requests/admission"
	"errand/internal/requests/hold"
)

// takers is how many goroutines take requests. While the operation is held, one probes; the other continues at its end.
const takers = 2

type puller struct {
	pulling admission.Slots // of the one taker that takes for workers
	work    chan<- *bus.Request
	more    bool // the last pull brought as many as were asked for
}

// take takes as many requests as workers are free, or makes a probe. None waits in a buffer, where its AckWait would run out.
func (c *Consumer[R]) take(ctx, hard context.Context, p *puller) error {
	permit, err := c.hold.Acquire(ctx)
	if err != nil {
		return err
	}
	if !permit.Probe() {
		return c.takeForWorkers(ctx, permit, p)
	}
	if err := c.InFlight.Take(ctx); err != nil {
		permit.Release(false)
		return err
	}
	defer c.InFlight.Free()
	err = c.probe(ctx, hard, permit)
	permit.Release(errors.Is(err, bus.ErrNoMessage) && c.empty(ctx))
	return err
}

// takeForWorkers passes requests to the workers. An empty queue is asked for one request until there is one: so it
// keeps one worker from the program's other queues, and they never keep that worker from it.
func (c *Consumer[R]) takeForWorkers(ctx context.Context, permit *hold.Permit, p *puller) error {
	if err := p.pulling.Take(ctx); err != nil {
		return err
	}
	defer p.pulling.Free()
	c.large.waiting.Wait()
	n := 1
	if p.more {
		n = c.queue.Max()
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
	give := func(r *bus.Request) {
		if free > 0 {
			free--
		} else { // it was asked for before the connection was lost
			c.lease.take(r)
			c.InFlight <- struct{}{}
		}
		if isLarge(r) {
			c.large.waiting.Add(1)
		}
		p.work <- r
	}
	if p.more {
		err = c.queue.Some(ctx, asked, give)
	} else {
		var r *bus.Request
		for err = bus.ErrNoMessage; errors.Is(err, bus.ErrNoMessage) && !permit.Spent(); {
			r, err = c.queue.Next(ctx, 0)
			if r != nil || errors.Is(err, bus.ErrNoMessage) {
				c.unhealthy("")
			}
		}
		if r != nil {
			give(r)
		}
	}
	p.more = free < asked
	return err
}

// lease keeps requests in flight from being delivered again: one heartbeat for all of them at a third of AckWait.
type lease struct {
	every time.Duration

	mu   sync.Mutex
	held map[*bus.Request]struct{}
	next *time.Timer // runs while there are any
}

func (l *lease) take(r *bus.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held == nil {
		l.held = map[*bus.Request]struct{}{}
	}
	if len(l.held) == 0 {
		l.next = time.AfterFunc(l.every, l.beat)
	}
	l.held[r] = struct{}{}
}

func (l *lease) drop(r *bus.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if delete(l.held, r); len(l.held) == 0 && l.next != nil {
		l.next.Stop()
	}
}

func (l *lease) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.held)
}

func (l *lease) beat() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for r := range l.held {
		_ = r.InProgress() // the next beat makes up for a lost one
	}
	if len(l.held) > 0 {
		l.next.Reset(l.every)
	}
}

// probe settles requests of a held operation until the probe's call was made. A request that made no call has proven
// nothing; one that is overdue may end without a call. The error is why the queue had none.
func (c *Consumer[R]) probe(ctx, hard context.Context, permit *hold.Permit) error {
	for {
		d, err := c.choose(ctx, permit)
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

// choose takes the first request that was not yet a probe of this hold or, if the queue has no other, the first that was.
func (c *Consumer[R]) choose(ctx context.Context, permit *hold.Permit) (*delivery[R], error) {
	var again *delivery[R]
	for range maxPassedOver {
		var r *bus.Request
		var err error
		if again == nil && !permit.Spent() {
			r, err = c.queue.Next(ctx, 2*c.hold.Interval)
		} else {
			r, err = c.queue.Take(ctx)
		}
		if err != nil && again != nil {
			break
		}
		if err != nil {
			return nil, err
		}
		d := c.open(r, permit)
		switch {
		case permit.Admit(d.asked()):
			c.passOver(again)
			return d, nil
		case again == nil:
			again = d
		default:
			c.passOver(d)
		}
	}
	permit.AdmitAgain(again.asked())
	return again, nil
}

// passOver gives back a request that may not be worked on now. It returns before the next probe is due.
func (c *Consumer[R]) passOver(d *delivery[R]) {
	if d != nil {
		c.lease.drop(d.Request)
		_ = d.NakWithDelay(c.hold.Interval / 2)
	}
}

// empty reports whether the queue is known to have no request at all, neither deferred nor with another worker.
func (c *Consumer[R]) empty(ctx context.Context) bool {
	pending, unacknowledged, err := c.queue.Waiting(ctx)
	return err == nil && pending == 0 && unacknowledged == 0
}
