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
	"errand/internal/lists"
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
	writes := s.send(s.events.Publisher.Begin(s.stream, len(events), false, s.highest), token, events)
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
	bus.Fence(fence, s.turns, token)
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
		for try := 1; ; try++ {
			_, err = s.send(s.events.Publisher.Begin(s.stream, len(some), true, s.highest), token, some).Wait(ctx)
			// The batch before is acknowledged, but the server may still count it as in flight.
			if !bus.IsInFlight(err) || try == leadTries || !retry.Pause(ctx, time.Duration(try)*retry.BatchStep) {
				break
			}
		}
		if err != nil {
			return stored, err
		}
		stored += len(some)
	}
	return stored, nil
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

const (
	roomForHeaders = 4 << 10            // more than an event's headers take
	eventID        = "ce-id"            // the header by which a state is recognized
	recipient      = "Errand-Recipient" // the header that says which recipient an event is about
)

// errUnencodable means that an event can never be published.
var errUnencodable = errors.New("an event cannot be encoded")

// encoder makes the messages of events, one after the other in the same memory: the connection copies them.
type encoder struct {
	source  string       // ce-source
	limit   func() int64 // bytes of the largest message that the server takes
	message nats.Msg
}

// encode makes the message of an event, valid until the next call. The fence keeps it single without a Nats-Msg-Id.
func (c *encoder) encode(e messages.Event) (*nats.Msg, error) {
	stored := lists.StoredAt(e, time.Time{})
	if stored.ID == "" {
		return nil, fmt.Errorf("%w: %s is not an event of a list", errUnencodable, e.Type())
	}
	body, err := e.Encode()
	for err == nil && int64(len(body))+roomForHeaders > c.limit() && messages.Abridge(e.Body) {
		body, err = e.Encode()
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUnencodable, err)
	}
	m := &c.message
	clear(m.Header)
	m.Subject, m.Reply, m.Data = e.Subject(), "", body
	e.Headers(m.Header, c.source, stored.ID)
	if stored.Recipient != "" {
		m.Header[recipient] = []string{stored.Recipient}
	}
	return m, nil
}
