// Package consumer takes requests from a queue and settles each: the handler's
// final event is stored and the request acknowledged, or it is put back for later.
//
//	hold ─► slot ─► one message ─► lease ─► decode ─► handler over its history ─► ack
//	                                                        └─ no answer yet ─► put back
package consumer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"errand/internal/bus"
	"errand/internal/history"
	"errand/internal/retry"
	"errand/pkg/messages"
)

// Handler answers one request. The event it returns is final: it is stored and the
// request is done, whether it tells of success or of refusal. An error means that
// there is no answer yet, and the request comes back later.
type Handler[R any] func(ctx context.Context, r history.Request[R]) (messages.Event, error)

// Slots bounds the requests that a program has in hand, over all its consumers.
type Slots chan struct{}

// Consumer settles the requests of one queue. Every field but Settled is required.
type Consumer[R any] struct {
	Operation   messages.Operation
	Conn        *nats.Conn
	Source      jetstream.Consumer // the queue
	Decode      func([]byte) (R, messages.Meta, error)
	Handle      Handler[R]
	Writes      bool // the handler changes something upstream
	Log         history.Log
	Dead        *bus.Publisher
	Hold        *Hold
	Slots       Slots
	GiveUpAfter time.Duration
	Logger      zerolog.Logger
	Settled     func(op messages.Operation, outcome string, took time.Duration)

	lease    lease
	fault    atomic.Pointer[string]
	stopping atomic.Bool
}

// Fault says what keeps the consumer from taking work; "" when nothing does.
func (c *Consumer[R]) Fault() string {
	if f := c.fault.Load(); f != nil {
		return *f
	}
	return ""
}

func (c *Consumer[R]) faulty(f string) {
	if f != c.Fault() {
		c.fault.Store(&f)
		if f != "" {
			c.Logger.Warn().Str("consumer", c.name()).Msg(f)
		}
	}
}

// InHand is how many requests are in hand.
func (c *Consumer[R]) InHand() int { return c.lease.count() }

func (c *Consumer[R]) name() string { return c.Source.CachedInfo().Name }

// Run takes and settles requests until ctx ends and every request in hand is
// settled. hard ends the patience with those: what is not settled then is put back.
func (c *Consumer[R]) Run(ctx, hard context.Context) error {
	context.AfterFunc(ctx, func() { c.stopping.Store(true) })
	pulls := c.open()
	beats, stop := context.WithCancel(hard)
	var keeper, hands sync.WaitGroup
	keeper.Go(func() { c.lease.keep(beats, c.Source.CachedInfo().Config.AckWait/3) })
	for range cap(c.Slots) {
		hands.Go(func() {
			for ctx.Err() == nil {
				if err := c.next(ctx, hard, pulls); err != nil {
					c.failed(ctx, err)
				}
			}
		})
	}
	hands.Wait()
	stop()
	keeper.Wait()
	pulls.close()
	return nil
}

// next takes at most one message and settles it. The error is why there was none.
func (c *Consumer[R]) next(ctx, hard context.Context, pulls *pulls) error {
	var p *bus.Pull
	select {
	case p = <-pulls.free:
	case <-ctx.Done():
		return ctx.Err()
	}
	turn, err := c.Hold.Enter(ctx, c.Writes)
	if err != nil {
		pulls.free <- p
		return err
	}
	select {
	case c.Slots <- struct{}{}:
	case <-ctx.Done():
		pulls.free <- p
		if turn {
			c.Hold.Leave(c.Writes, false)
		}
		return ctx.Err()
	}
	defer func() { <-c.Slots }()
	wait := time.Duration(0)
	if turn {
		wait = 2 * c.Hold.Interval
	}
	m, err := c.take(ctx, p, wait)
	pulls.back(p, err == nil)
	var probe bool
	if err == nil {
		probe, wait = c.Hold.Claim(c.Writes)
	}
	if turn {
		c.Hold.Leave(c.Writes, errors.Is(err, bus.ErrNoMessage) && c.empty(ctx))
	}
	switch {
	case err != nil:
		return err
	case wait > 0: // the hold began while we waited for a message
		_ = m.NakWithDelay(wait)
		return nil
	case probe:
		defer c.Hold.Release()
	}
	c.faulty("")
	c.lease.take(m)
	c.settle(hard, m)
	return nil
}

// take pulls one message: none waits in a buffer, where its AckWait would run out. The
// one slot that two consumers share is lost to the other while one waits in it.
func (c *Consumer[R]) take(ctx context.Context, p *bus.Pull, wait time.Duration) (*bus.Request, error) {
	if cap(c.Slots) == 1 {
		return p.Take(ctx)
	}
	return p.Next(ctx, wait)
}

// empty reports whether the queue has no request, also none that was put off or is in
// somebody's hand. It is not when nobody knows.
func (c *Consumer[R]) empty(ctx context.Context) bool {
	info, err := c.Source.Info(ctx)
	return err == nil && info.NumPending == 0 && info.NumAckPending == 0
}

// otherTurn is how long a consumer that found nothing leaves a program's only slot to
// the other one.
const otherTurn = time.Second / 4

// failed handles a take that brought nothing. A deleted consumer looks alike to a
// silent one, so it is asked for, until it is there: a take that waits for its next
// message would not tell that it came back.
func (c *Consumer[R]) failed(ctx context.Context, err error) {
	if errors.Is(err, bus.ErrNoMessage) {
		if cap(c.Slots) == 1 {
			retry.Pause(ctx, otherTurn)
		}
		return
	}
	for there := false; !there && retry.Pause(ctx, time.Second); {
		_, err := c.Source.Info(ctx)
		switch there = err == nil; {
		case there:
			c.faulty("")
		case errors.Is(err, jetstream.ErrConsumerNotFound), errors.Is(err, jetstream.ErrStreamNotFound):
			c.faulty(fmt.Sprintf("consumer %s is gone: run `errand provision`", c.name()))
		}
	}
}
