package sink

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"errand/internal/bus"
	"errand/internal/failpoint"
	"errand/internal/lists/sweep"
	"errand/internal/retry"
	"errand/pkg/messages"
)

// Publish begins to store a page of events under the leadership that Learn took, and returns a function that waits for it.
// The waits are called in order, all before Learn; ctx must last as long. Errors: see sweep.Sink.
func (s *Store) Publish(ctx context.Context, events []messages.Event) (wait func() (stored int, err error)) {
	token := s.token
	switch {
	case token == 0:
		return func() (int, error) { return 0, sweep.ErrBehind }
	case len(events) == 0:
		return func() (int, error) { return 0, nil }
	case s.atomic: // a cluster has one fenced write in flight, so the page is sent when it is waited for
		return func() (int, error) {
			if s.token != token { // a page before failed
				return 0, sweep.ErrBehind
			}
			stored, err := s.batches(ctx, token, events)
			return stored, s.settle(err)
		}
	}
	writes := s.send(s.events.Publisher.Begin(s.stream, len(events), s.highest), token, events)
	return func() (int, error) {
		stored, err := writes.Wait(ctx)
		// In a cluster one fenced write is in flight at a time. Writes behind a refused one may be stored: that is learned.
		s.atomic = s.atomic || bus.IsInFlight(err)
		return stored, s.settle(err)
	}
}

// send sends events, each fenced on the leadership.
func (s *Store) send(writes *bus.Writes, token uint64, events []messages.Event) *bus.Writes {
	fence := nats.Header{}
	bus.Fence(fence, s.Leadership, token)
	for i, e := range events {
		m, err := s.encoder.encode(e)
		if err != nil {
			writes.Abort(err)
			break
		}
		if i == 0 || !s.atomic {
			maps.Copy(m.Header, fence)
		}
		if writes.Send(m) != nil {
			break
		}
		failpoint.Here(failpoint.Publishing)
	}
	return writes
}

// batches stores events in one atomic batch after the other.
func (s *Store) batches(ctx context.Context, token uint64, events []messages.Event) (stored int, err error) {
	for some := range slices.Chunk(events, bus.MaxAtomic) {
		err = s.batch(ctx, token, some)
		for try := 1; try < leadTries && bus.IsInFlight(err) && retry.Pause(ctx, time.Duration(try)*retry.BatchStep); try++ {
			err = s.batch(ctx, token, some) // the batch before is acknowledged, but the server still counts it as in flight
		}
		if err != nil {
			return stored, err
		}
		stored += len(some)
	}
	return stored, nil
}

func (s *Store) batch(ctx context.Context, token uint64, events []messages.Event) error {
	_, err := s.send(s.events.Publisher.BeginAtomic(s.stream, len(events), s.highest), token, events).Wait(ctx)
	return err
}

// settle gives the leadership up after any error: what is still on its way must not be stored after it is published again.
func (s *Store) settle(err error) error {
	if err == nil {
		return nil
	}
	s.turn, s.token = 0, 0
	if errors.Is(err, bus.ErrSetBack) {
		return s.reset()
	}
	if bus.IsFinal(err) || errors.Is(err, errUnencodable) {
		return fmt.Errorf("sink: store events: %w", err)
	}
	return fmt.Errorf("%w: %w", sweep.ErrBehind, err)
}
