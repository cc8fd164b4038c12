package sink

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/failpoint"
	"errand/internal/lists/sweep"
	"errand/internal/retry"
	"errand/pkg/messages"
)

// Publish begins to store events under the leadership that Learn took, and gives what
// waits for their end. The waits are called in the order of the pages, all of them before
// Learn; ctx must last as long. See sweep.Sink for the errors.
func (s *Store) Publish(ctx context.Context, events []messages.Event) (wait func() (stored int, err error)) {
	token := s.token
	switch {
	case token == 0:
		return func() (int, error) { return 0, sweep.ErrBehind }
	case len(events) == 0:
		return func() (int, error) { return 0, nil }
	case s.batched: // a cluster has one fenced write in flight: the page's turn comes with its wait
		return func() (int, error) {
			if s.token != token { // a page before failed
				return 0, sweep.ErrBehind
			}
			stored, err := s.batches(ctx, token, events)
			return stored, s.settle(err)
		}
	}
	p := s.each(token, events)
	return func() (int, error) {
		stored, err := s.acks.wait(ctx, p)
		// Another write of ours is in flight: in a cluster there is one fence at a
		// time. Batches have one each. Those behind the first that was refused may
		// be stored or not, so that must be learned.
		s.batched = s.batched || inFlight(err)
		return stored, s.settle(err)
	}
}

// settle gives the leadership up after any error: what is still on its way, of this page
// or of those behind it, must not be stored after it was published again.
func (s *Store) settle(err error) error {
	if err == nil {
		return nil
	}
	s.token = 0
	if errors.Is(err, errOlder) {
		return s.reset()
	}
	if bus.IsFinal(err) || errors.Is(err, errUnencodable) {
		return fmt.Errorf("sink: store events: %w", err)
	}
	return fmt.Errorf("%w: %w", sweep.ErrBehind, err)
}

// inFlight reports the answer of a cluster to a second fenced write in flight.
func inFlight(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant
}

// each writes every event on its own, all at once.
func (s *Store) each(token uint64, events []messages.Event) *page {
	p := s.acks.begin(len(events))
	guard := nats.Header{}
	bus.Fence(guard, s.Leadership, token)
	for i, e := range events {
		m, err := s.encoder.encode(e)
		if err == nil {
			maps.Copy(m.Header, guard)
			m.Reply = s.acks.reply(p, i)
			err = s.js.Conn().PublishMsg(m)
		}
		if err != nil {
			s.acks.abort(p, i, err)
			break
		}
		failpoint.Here(failpoint.Publishing)
	}
	return p
}

// maxInBatch is the server's limit.
const maxInBatch = 1000

// batches stores events in one batch after the other.
func (s *Store) batches(ctx context.Context, token uint64, events []messages.Event) (stored int, err error) {
	for some := range slices.Chunk(events, maxInBatch) {
		_, err = s.acks.wait(ctx, s.batch(token, some))
		for try := 1; try < leadTries && inFlight(err) && retry.Pause(ctx, time.Duration(try)*retry.BatchStep); try++ {
			_, err = s.acks.wait(ctx, s.batch(token, some)) // the one before is acknowledged, but still in the server's books
		}
		if err != nil {
			return stored, err
		}
		stored += len(some)
	}
	return stored, nil
}

// batch writes events of which all are stored or none: it is one write to wait for.
func (s *Store) batch(token uint64, events []messages.Event) *page {
	p := s.acks.begin(1)
	p.until = p.until.Add(time.Duration(len(events)) * writeTime)
	id := []string{s.writer + "-" + strconv.FormatUint(p.first, 36)}
	for i, e := range events {
		m, err := s.encoder.encode(e)
		if err == nil {
			m.Header["Nats-Batch-Id"] = id
			m.Header["Nats-Batch-Sequence"] = []string{strconv.Itoa(i + 1)}
			if i == 0 {
				bus.Fence(m.Header, s.Leadership, token)
			}
			if i == len(events)-1 {
				m.Header["Nats-Batch-Commit"] = []string{"1"}
				m.Reply = s.acks.reply(p, 0)
			}
			err = s.js.Conn().PublishMsg(m)
		}
		if err != nil {
			s.acks.abort(p, 0, err)
			break
		}
	}
	return p
}
