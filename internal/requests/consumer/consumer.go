// Package consumer takes requests from a queue: each is settled by the handler's final event, or comes back later.
//
//	permit of the hold ─► free workers ─► a message each ─► lease ─► decode ─► handler over its history ─► ack
//	                                                                                └─ no answer yet ─► nak with delay
//
//	consumer.go  the four operations, workers, and what ends them
//	take.go      pull as many requests as workers are free, or the one that a hold lets pass; keep them leased, bound their
//	             bytes; read the message: its body, id, time to give up; was it reopened by a person?
//	settle.go    outcome, dead letter, ack, nak: the only place that decides about a delivery; a request whose not_before has not
//	             come leaves its queue; what is logged and counted
package consumer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"errand/internal/bus"
	"errand/internal/history"
	"errand/internal/requests/admission"
	"errand/internal/requests/attempt"
	"errand/internal/requests/hold"
	"errand/internal/retry"
	"errand/internal/telemetry"
	"errand/pkg/messages"
)

// Handler answers one request. The event it returns is final: it is stored and the request is done, whether it says
// success or refusal. An error means that there is no answer yet, and the request comes back later.
type Handler[R any] func(ctx context.Context, r attempt.Request[R]) (messages.Event, error)

// Ended returns the outcome of a request that is not run, or no longer, by why and by what was done for it.
type Ended[R any] func(R, messages.FailedBody, history.Effect) (messages.State, messages.Body)

type requested interface {
	messages.EnrollRequest | messages.TransactionsRequest | messages.SendRequest | messages.AccountRequest
	messages.Request
}

// Settings are what the consumers of a program share.
type Settings struct {
	Log history.Log
	// Dead stores a request that did not go well, and Later keeps one until its not_before.
	Dead        func(context.Context, *bus.Request, bus.DeadLetter) error
	Later       func(context.Context, *bus.Request, bus.Schedule) error
	InFlight    admission.Slots      // requests, of all consumers together
	GiveUpAfter time.Duration        // unless the request names a time
	Kept        func() time.Duration // how long events are kept; 0 means forever
	Newer       func() bool          // newer programs are being rolled out: what looks invalid may be for them
	Logger      zerolog.Logger
	Settled     func(Outcome)
	Panicked    func(op messages.Operation)
	Tracer      *telemetry.Tracer // nil without traces
}

// Queue delivers requests, as a bus.Pull does. It is used by several goroutines.
type Queue interface {
	Name() string
	AckWait() time.Duration
	// Max is how many requests Some may be asked for.
	Max() int
	Next(ctx context.Context, wait time.Duration) (*bus.Request, error)
	Take(context.Context) (*bus.Request, error)
	Some(ctx context.Context, n int, take func(*bus.Request)) error
	Waiting(context.Context) (pending, unacknowledged int, err error)
	Close()
}

// Consumer settles the requests of one operation.
type Consumer[R requested] struct {
	Settings
	op     messages.Operation
	read   func([]byte) (R, messages.Meta, error)
	handle Handler[R]
	ended  Ended[R]
	lanes  []*lane
	hold   *hold.Hold

	lease    lease
	stopping atomic.Bool
}

// Lane is a queue of the same operation beside the first.
type Lane struct {
	Name string
	Queue
}

// New makes the consumer of an operation's queues, which Run closes.
func New[R requested](s Settings, queue Queue, h *hold.Hold, handle Handler[R], ended Ended[R], lanes ...Lane) *Consumer[R] {
	c := &Consumer[R]{Settings: s, op: (*new(R)).Operation(), read: messages.Decode[R], handle: handle, ended: ended, hold: h,
		lease: lease{every: queue.AckWait() / 3}}
	for _, l := range append([]Lane{{messages.DefaultLane, queue}}, lanes...) {
		c.lanes = append(c.lanes, &lane{queue: l.Queue, places: s.InFlight.In(l.Name), pulling: admission.NewSlots(1)})
		c.lease.every = min(c.lease.every, l.AckWait()/3)
	}
	return c
}

// Fault says what keeps the consumer from taking work; "" when nothing does.
func (c *Consumer[R]) Fault() string {
	for _, l := range c.lanes {
		if f := l.fault.Load(); f != nil && *f != "" {
			return *f
		}
	}
	return ""
}

// Requests is how many requests are in flight.
func (c *Consumer[R]) Requests() int { return c.lease.count() }

// Run takes and settles requests until ctx ends and all in flight are settled; those left when hard ends are given back.
func (c *Consumer[R]) Run(ctx, hard context.Context) error {
	context.AfterFunc(ctx, func() { c.stopping.Store(true) })
	var workers, taking sync.WaitGroup
	work := make(chan taken)
	for range c.InFlight.Whole() {
		workers.Go(func() {
			for t := range work {
				c.work(ctx, hard, t)
				t.places.Free()
			}
		})
	}
	for _, l := range c.lanes {
		for range takers {
			taking.Go(func() {
				for ctx.Err() == nil {
					if err := c.take(ctx, hard, l, work); err != nil {
						c.awaitQueue(ctx, l, err)
					}
				}
			})
		}
	}
	taking.Wait()
	for _, l := range c.lanes {
		l.queue.Close()
	}
	close(work)
	workers.Wait()
	return nil
}

func (c *Consumer[R]) work(ctx, hard context.Context, t taken) {
	bytes, err := c.admitLarge(ctx, t)
	if err != nil {
		return
	}
	defer t.large.room.Free(bytes)
	permit := c.hold.Permit()
	switch d := c.open(t, permit); {
	case permit.Admit(d.asked()):
		c.settle(hard, d)
	default: // a hold began meanwhile
		c.passOver(d)
	}
}

// awaitQueue handles a take that brought nothing. A deleted consumer looks like a silent one, so it is looked up until
// it is there: a take that waits for its next message would not show that it came back.
func (c *Consumer[R]) awaitQueue(ctx context.Context, l *lane, why error) {
	if errors.Is(why, bus.ErrNoMessage) {
		return
	}
	for retry.Pause(ctx, retry.MissingConsumer) {
		_, _, err := l.queue.Waiting(ctx)
		switch {
		case err == nil && errors.Is(why, bus.ErrRefused):
			l.unhealthy(c.Logger, fmt.Sprintf("consumer %s delivers no requests: %v: if this lasts, look at the request limits that were set on it",
				l.queue.Name(), why))
			return
		case err == nil:
			l.unhealthy(c.Logger, "")
			return
		case errors.Is(err, bus.ErrQueueGone):
			l.unhealthy(c.Logger, fmt.Sprintf("consumer %s is gone: run `errand provision --missing`", l.queue.Name()))
		}
	}
}
