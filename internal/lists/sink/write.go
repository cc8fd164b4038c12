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

	"errand/internal/bus"
	"errand/internal/failpoint"
	"errand/internal/history"
	"errand/internal/lists"
	"errand/internal/lists/sweep"
	"errand/internal/retry"
	"errand/pkg/messages"
)

// Lead writes a message on the subject of turns. Behind it no earlier write of any publisher is stored.
func (s *Store) Lead(ctx context.Context) error {
	s.turn, s.token = 0, 0
	for try := 1; ; try++ {
		last, err := s.lastTurn(ctx)
		if err != nil {
			return err
		}
		m := &nats.Msg{Subject: s.turns, Data: []byte(s.writer), Header: nats.Header{}}
		bus.Fence(m.Header, s.turns, last)
		a, err := s.events.Publisher.Publish(ctx, m)
		if err == nil {
			return s.leads(a.Sequence)
		}
		if bus.IsFinal(err) || try == leadTries || !retry.Pause(ctx, time.Duration(try-1)*retry.LeadStep) {
			return fmt.Errorf("sink: become the active publisher: %w", err)
		}
	}
}

// leads notes the turn, and answers from now on. sweep.ErrReset: the stream lost some of what it had.
func (s *Store) leads(turn uint64) (err error) {
	if s.answers == nil {
		nc := s.js.Conn()
		answer := func(m *nats.Msg) { _ = m.Respond(strconv.AppendInt(nil, s.ReadSince.Load(), 10)) }
		if s.answers, err = nc.Subscribe(s.leader, answer); err == nil {
			err = nc.FlushTimeout(retry.Answer)
		}
		if err != nil {
			return fmt.Errorf("sink: answer who leads: %w", err)
		}
	}
	if turn <= *s.highest || turn < s.published.Next {
		return s.reset()
	}
	s.turn, s.highest = turn, &turn
	return nil
}

// lastTurn returns the sequence of the last turn. sweep.ErrLed: it is another poller's, and this one led until then.
func (s *Store) lastTurn(ctx context.Context) (sequence uint64, err error) {
	last, err := s.end(ctx, s.operation, s.turns)
	if s.answers != nil && last.Sequence > 0 && string(last.Body) != s.writer {
		s.Resign()
		s.turn, s.token = 0, 0
		return 0, sweep.ErrLed
	}
	return last.Sequence, err
}

// Led reports whether another poller leads: one that leads sees it by the last turn, a standby asks. One that does not answer
// is stopped or cut off.
func (s *Store) Led(ctx context.Context) (bool, error) {
	if s.answers != nil {
		if _, err := s.lastTurn(ctx); !errors.Is(err, sweep.ErrLed) {
			return false, err
		}
		return true, nil
	}
	for range 2 {
		asking, cancel := context.WithTimeout(ctx, retry.LeaderAnswer)
		answer, err := s.js.Conn().RequestWithContext(asking, s.leader, nil)
		cancel()
		switch {
		case err == nil:
			s.turn, s.token = 0, 0
			s.events.Publisher.Forget() // the other one stores it, or says why not
			if read, err := strconv.ParseInt(string(answer.Data), 10, 64); err == nil && read > s.ReadSince.Load() {
				s.ReadSince.Store(read)
			}
			return true, nil
		case errors.Is(err, nats.ErrNoResponders):
			return false, nil
		case ctx.Err() != nil, !errors.Is(err, context.DeadlineExceeded), !s.js.Conn().IsConnected():
			return false, fmt.Errorf("sink: ask who leads: %w", err)
		}
	}
	return false, nil
}

// Resign ends the answers to standbys. What this poller publishes is stored until another one has taken the leadership.
func (s *Store) Resign() {
	_ = s.answers.Unsubscribe() // it fails of a standby, and when the connection is closed
	s.answers = nil
}

// Publish begins to store events under the leadership that Learn took. In a cluster, which has one fenced write in flight at a time,
// they go in atomic batches, one after the other. Errors: see sweep.Sink.
func (s *Store) Publish(ctx context.Context, events []messages.Event) (wait func() (stored int, err error)) {
	switch {
	case s.token == 0:
		return sweep.Done(0, sweep.ErrBehind)
	case s.atomic || len(events) == 0:
		stored, err := s.batches(ctx, events)
		return sweep.Done(stored, s.settle(err))
	}
	writes := s.send(events, false)
	return func() (int, error) {
		stored, _, err := writes.Wait(ctx)
		s.atomic = s.atomic || bus.IsInFlight(err) // writes behind a refused one may be stored: that is learned
		return stored, s.settle(err)
	}
}

// send sends events, each fenced on the leadership, or all of a batch.
func (s *Store) send(events []messages.Event, atomic bool) *bus.Writes {
	writes, fence := s.events.Publisher.Begin(s.stream, len(events), atomic, s.highest), nats.Header{}
	bus.Fence(fence, s.turns, s.token)
	for i, e := range events {
		m, err := s.encode(e)
		if err != nil {
			writes.Abort(err)
			break
		}
		if i == 0 || !atomic {
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
func (s *Store) batches(ctx context.Context, events []messages.Event) (stored int, err error) {
	for some := range slices.Chunk(events, bus.MaxAtomic) {
		for try := 1; ; try++ {
			_, _, err = s.send(some, true).Wait(ctx)
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
	leadTries      = 10
	roomForHeaders = 4 << 10            // more than an event's headers take
	eventID        = "ce-id"            // the header by which a state is recognized
	recipient      = "Errand-Recipient" // the header that says which recipient an event is about
)

// errUnencodable means that an event can never be published.
var errUnencodable = errors.New("an event cannot be encoded")

// encode makes the message of an event, in the memory of the one before: the connection has copied that. The fence keeps it single
// without a Nats-Msg-Id.
func (s *Store) encode(e messages.Event) (*nats.Msg, error) {
	body, err := e.Encode()
	for err == nil && int64(len(body))+roomForHeaders > s.js.Conn().MaxPayload() && history.Abridge(e.Body) {
		body, err = e.Encode()
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUnencodable, err)
	}
	m, stored := &s.message, lists.StoredAt(e, time.Time{})
	clear(m.Header)
	m.Subject, m.Reply, m.Data = e.Subject(), "", body
	e.Headers(m.Header, s.events.Source, stored.ID)
	if stored.Recipient != "" {
		m.Header[recipient] = []string{stored.Recipient}
	}
	return m, nil
}
