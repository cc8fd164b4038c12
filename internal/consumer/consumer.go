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
	pullers, err := c.pullers()
	if err != nil {
		return err
	}
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
	for range cap(pullers) {
		(<-pullers).close()
	}
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

// nothing reports whether a take waited its time and no message came.
func nothing(err error) bool {
	return errors.Is(err, nats.ErrTimeout) || errors.Is(err, context.DeadlineExceeded)
}

// puller asks the server for one message at a time: none waits in a buffer, where
// its AckWait would run out.
type puller interface {
	// take waits for a message; wait 0 means until ctx ends.
	take(ctx context.Context, wait time.Duration) (jetstream.Msg, error)
	close()
}

// most is how many pulls of one message wait at once: few leave the hands idle for
// a round trip and make each message pay its own system calls, on both sides.
const most = 16

// pullers leaves a slot for the program's other consumer.
func (c *Consumer[R]) pullers() (chan puller, error) {
	n := 1
	if c.Writes {
		n = max(1, min(most, cap(c.Slots)-1))
	}
	ps := make(chan puller, n)
	for range n {
		if cap(c.Slots) == 1 {
			ps <- turns{c.Source}
			continue
		}
		ps <- &stream{open: func() (jetstream.MessagesContext, error) {
			return c.Source.Messages(jetstream.PullMaxMessages(1), jetstream.PullExpiry(30*time.Second),
				jetstream.PullHeartbeat(5*time.Second), jetstream.WithMessagesErrOnMissingHeartbeat(true))
		}}
	}
	return ps, nil
}

// stream pulls over one long-lived subscription.
type stream struct {
	open func() (jetstream.MessagesContext, error)
	it   jetstream.MessagesContext
}

func (s *stream) take(ctx context.Context, wait time.Duration) (jetstream.Msg, error) {
	if s.it == nil {
		it, err := s.open()
		if err != nil {
			return nil, err
		}
		s.it = it
	}
	if wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, wait)
		defer cancel()
	}
	m, err := s.it.Next(jetstream.NextContext(ctx))
	if errors.Is(err, jetstream.ErrMsgIteratorClosed) || errors.Is(err, jetstream.ErrConsumerDeleted) || errors.Is(err, jetstream.ErrBadRequest) {
		s.it.Stop()
		s.it = nil // opened anew by the next take
	}
	return m, err
}

// close gives back what arrived after the last take.
func (s *stream) close() {
	if s.it == nil {
		return
	}
	s.it.Drain()
	for {
		m, err := s.it.Next(jetstream.NextMaxWait(time.Second))
		if err != nil {
			return
		}
		_ = m.Nak()
	}
}

// turns pulls for a second at a time, for the one slot that two consumers share.
type turns struct{ source jetstream.Consumer }

func (t turns) take(ctx context.Context, wait time.Duration) (jetstream.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, max(wait, time.Second))
	defer cancel()
	return t.source.Next(jetstream.FetchContext(ctx))
}

func (t turns) close() {}
