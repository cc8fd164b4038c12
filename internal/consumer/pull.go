package consumer

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// puller asks the server for one message at a time: none waits in a buffer, where
// its AckWait would run out.
type puller interface {
	// take waits for a message at most, wait 0 means until ctx ends. When it gives none, none
	// is on its way any more: what the server sent to a pull that nobody reads would
	// be lost until its AckWait is over. So it may give one after ctx ended.
	take(ctx context.Context, wait time.Duration) (jetstream.Msg, error)
	close()
}

// nothing reports whether a take waited its time and no message came.
func nothing(err error) bool {
	return errors.Is(err, nats.ErrTimeout) || errors.Is(err, context.DeadlineExceeded)
}

// most is how many pulls of one message wait at once: few leave the hands idle for
// a round trip and make each message pay its own system calls, on both sides.
const most = 16

// pullers leaves a slot for the program's other consumer.
func (c *Consumer[R]) pullers() chan puller {
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
	return ps
}

// stream pulls over one long-lived subscription.
type stream struct {
	open func() (jetstream.MessagesContext, error)
	it   jetstream.MessagesContext
}

func (s *stream) take(ctx context.Context, wait time.Duration) (jetstream.Msg, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if s.it == nil {
		it, err := s.open()
		if err != nil {
			return nil, err
		}
		s.it = it
	}
	until := ctx
	if wait > 0 {
		var cancel context.CancelFunc
		until, cancel = context.WithTimeout(ctx, wait)
		defer cancel()
	}
	asked := time.Now()
	m, err := s.it.Next(jetstream.NextContext(until))
	if err == nil {
		return m, nil
	}
	it := s.it
	s.it = nil // opened anew by the next take
	if m := withdraw(it, asked); m != nil {
		return m, nil
	}
	return nil, err
}

func (s *stream) close() {
	if s.it != nil {
		s.it.Stop()
	}
}

// answerTime is how soon a server answers a pull if it has a message for it.
const answerTime = time.Second / 2

// withdraw takes a pull back, and gives the message that comes nevertheless. A pull
// that was only just made is answered first, if there is an answer: one that the
// server has sent when it hears of the withdrawal counts as a delivery in vain.
func withdraw(it jetstream.MessagesContext, asked time.Time) jetstream.Msg {
	defer it.Stop()
	if early := answerTime - time.Since(asked); early > 0 {
		if m, err := it.Next(jetstream.NextMaxWait(early)); err == nil {
			return m
		}
	}
	it.Drain()
	if m, err := it.Next(jetstream.NextMaxWait(2 * time.Second)); err == nil {
		return m
	}
	return nil
}

// turns asks for a message that is there, for the one slot that two consumers share: a
// slot in which one of them waits is lost to the other.
type turns struct{ source jetstream.Consumer }

func (t turns) take(ctx context.Context, _ time.Duration) (jetstream.Msg, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	batch, err := t.source.FetchNoWait(1)
	if err != nil {
		return nil, err
	}
	if m := <-batch.Messages(); m != nil {
		return m, nil
	}
	if err := batch.Error(); err != nil {
		return nil, err
	}
	return nil, nats.ErrTimeout
}

func (t turns) close() {}
