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

	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"errand/internal/bus"
	"errand/internal/history"
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
	Source      jetstream.Consumer
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

	lease lease
	fault atomic.Pointer[string]
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
	pullers := c.pullers()
	beats, stop := context.WithCancel(hard)
	var keeper, hands sync.WaitGroup
	keeper.Go(func() { c.lease.keep(beats, c.Source.CachedInfo().Config.AckWait/3) })
	for range cap(c.Slots) {
		hands.Go(func() {
			for ctx.Err() == nil {
				c.next(ctx, hard, pullers)
			}
		})
	}
	hands.Wait()
	stop()
	keeper.Wait()
	return nil
}

// next takes at most one message and settles it.
func (c *Consumer[R]) next(ctx, hard context.Context, pullers chan puller) {
	var p puller
	select {
	case p = <-pullers:
	case <-ctx.Done():
		return
	}
	turn, err := c.Hold.Enter(ctx, c.Writes)
	if err != nil {
		pullers <- p
		return
	}
	select {
	case c.Slots <- struct{}{}:
	case <-ctx.Done():
		pullers <- p
		if turn {
			c.Hold.Leave(true)
		}
		return
	}
	defer func() { <-c.Slots }()
	wait := time.Duration(0)
	if turn {
		wait = 2 * c.Hold.Interval
	}
	m, err := p.take(ctx, wait)
	pullers <- p
	var probe bool
	if err == nil {
		probe, wait = c.Hold.Claim(c.Writes)
	}
	if turn {
		c.Hold.Leave(err != nil && !nothing(err))
	}
	switch {
	case err != nil:
		c.failed(ctx, err)
		return
	case wait > 0: // the hold began while we waited for a message
		_ = m.NakWithDelay(wait)
		return
	case probe:
		defer c.Hold.Release()
	}
	c.faulty("")
	c.lease.take(m)
	c.settle(hard, m)
}

// failed handles a take that brought nothing. A deleted consumer looks alike to a
// silent one, so it is asked for.
func (c *Consumer[R]) failed(ctx context.Context, err error) {
	if ctx.Err() != nil || nothing(err) {
		return
	}
	if _, e := c.Source.Info(ctx); errors.Is(e, jetstream.ErrConsumerNotFound) || errors.Is(e, jetstream.ErrStreamNotFound) {
		c.faulty(fmt.Sprintf("consumer %s is gone: run `errand provision`", c.name()))
	} else if e == nil {
		c.faulty("")
	}
	select {
	case <-ctx.Done():
	case <-time.After(time.Second):
	}
}
