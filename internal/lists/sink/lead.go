package sink

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"errand/internal/bus"
	"errand/internal/lists/sweep"
	"errand/internal/retry"
)

// turnBody is the body of a message on the subject of turns.
type turnBody struct {
	Writer string `json:"writer"`
}

// leader is the subject on which a standby asks whether anybody leads. Nothing of it is stored.
func (s *Store) leader() string { return "errand.leader." + string(s.operation) }

// Lead writes a message on the subject of turns. Behind it no earlier write of any publisher is stored.
func (s *Store) Lead(ctx context.Context) error {
	s.turn, s.token = 0, 0
	body, _ := json.Marshal(turnBody{s.writer}) // texts always encode
	for try := 1; ; try++ {
		last, lost, err := s.lastTurn(ctx)
		switch {
		case err != nil:
			return err
		case lost:
			return sweep.ErrLed
		}
		m := &nats.Msg{Subject: s.turns, Data: body, Header: nats.Header{"content-type": {"application/json"}}}
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

const leadTries = 10

// leads notes the turn, and answers from now on. sweep.ErrReset: the stream lost some of what it had.
func (s *Store) leads(turn uint64) (err error) {
	s.led = true
	if s.answers == nil {
		nc := s.js.Conn()
		answer := func(m *nats.Msg) { _ = m.Respond(strconv.AppendInt(nil, s.ReadSince.Load(), 10)) }
		if s.answers, err = nc.Subscribe(s.leader(), answer); err == nil {
			err = nc.FlushTimeout(retry.Answer)
		}
		if err != nil {
			return fmt.Errorf("sink: answer who leads: %w", err)
		}
	}
	if turn <= *s.highest || turn < s.published.next {
		return s.reset()
	}
	s.turn, s.highest = turn, &turn
	return nil
}

// lastTurn returns the sequence of the last turn. If that is another poller's and this one led, it has lost the leadership.
func (s *Store) lastTurn(ctx context.Context) (sequence uint64, lost bool, err error) {
	last, err := s.end(ctx, s.operation, s.turns)
	if err != nil {
		return 0, false, err
	}
	var by turnBody
	if lost = s.led && last.Sequence > 0 && (json.Unmarshal(last.Body, &by) != nil || by.Writer != s.writer); lost {
		s.Resign()
		s.turn, s.token, s.led = 0, 0, false
	}
	return last.Sequence, lost, nil
}

// Led reports whether another poller leads: one that leads sees it by the last turn, a standby asks. One that does not answer
// is stopped or cut off.
func (s *Store) Led(ctx context.Context) (led bool, err error) {
	if s.answers != nil {
		_, led, err = s.lastTurn(ctx)
		return led, err
	}
	for range 2 {
		asking, cancel := context.WithTimeout(ctx, retry.LeaderAnswer)
		answer, err := s.js.Conn().RequestWithContext(asking, s.leader(), nil)
		cancel()
		switch {
		case err == nil:
			s.turn, s.token, s.led = 0, 0, false
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
	if s.answers != nil {
		_ = s.answers.Unsubscribe() // it fails when the connection is closed
	}
	s.answers = nil
}
