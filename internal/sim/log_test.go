package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"errand/internal/history"
	"errand/internal/retry"
	"errand/internal/wire"
	"errand/pkg/messages"
)

// eventLog is the events stream, as bus.EventStore shows it: fenced on the wildcard, slow, sometimes full, with writes whose
// acknowledgement is lost, replicas that lag, purges, and an age at which events go.
type eventLog struct {
	in *world

	mu     sync.Mutex
	events []*stored            // all that ever were, in order
	of     map[string][]*stored // by operation and id
}

type stored struct {
	history.Entry
	op     messages.Operation
	state  messages.State
	id     string // of a batch with its number
	writer string
	trace  string // the message that it is about
	facts  history.Facts
	gone   bool // purged
}

func (e *stored) outcome() bool { return e.op != messages.Batch && e.state.Final(e.op) }

func historyKey(op messages.Operation, id string) string { return string(op) + "/" + id }

// keyOf is the history that a subject or a filter belongs to, and its state, "*" for any.
func keyOf(subject string) (key string, state messages.State) {
	s := messages.ParseSubject(subject)
	_, id, _ := strings.Cut(subject[len(s.Operation)+1:], ".")
	return historyKey(s.Operation, id), s.State
}

// newest is when the last event was stored.
func (l *eventLog) newest() (at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.events); n > 0 {
		at = l.events[n-1].At
	}
	return at
}

// there reports whether the stream still has an event.
func (l *eventLog) there(e *stored) bool {
	return !e.gone && (l.in.kept == 0 || time.Since(e.At) < l.in.kept)
}

// last returns the last event of a history in a state, as it was a while ago; nil if there was no such event.
func (l *eventLog) last(key string, state messages.State, ago time.Duration) *stored {
	for _, e := range slices.Backward(l.of[key]) {
		if (state == "*" || e.state == state) && l.there(e) && time.Since(e.At) >= ago {
			return e
		}
	}
	return nil
}

var errUnexplained = errors.New("the server refuses the event for another one, and shows none")

// put stores a record if its fence holds.
func (l *eventLog) put(r history.Record, body []byte) (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := historyKey(r.Event.Operation, r.Event.ID)
	last := l.last(key, "*", 0)
	switch {
	case last == nil && r.Last > 0 && (r.Event.State == messages.Started || r.Event.State == messages.Reopened):
		return 0, errUnexplained // its history was removed
	case last == nil: // or it was removed: what became of a call is stored all the same
	case last.Sequence > r.Last:
		return 0, history.ErrFenced
	case last.Sequence < r.Last:
		return 0, errUnexplained
	}
	e := &stored{Entry: history.Entry{Subject: r.Event.Subject(), Sequence: uint64(len(l.events) + 1), At: time.Now(), Body: body},
		op: r.Event.Operation, state: r.Event.State, id: r.Event.ID, writer: r.Writer, trace: r.Trace.Parent}
	e.facts, _ = history.ReadFacts(body)
	l.events = append(l.events, e)
	l.of[key] = append(l.of[key], e)
	l.in.stored(e)
	return e.Sequence, nil
}

// purge removes events.
func (l *eventLog) purge(which func(*stored) bool) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.events {
		if !e.gone && which(e) {
			e.gone = true
			n++
		}
	}
	return n
}

// client is the log as one replica or person has it.
type client struct {
	*eventLog
	*node
}

// Append is what bus.EventStore's is: it repeats a write until it is known what became of it, or ctx ends.
func (c client) Append(ctx context.Context, r history.Record) (uint64, error) {
	body, err := r.Event.Encode()
	if err != nil {
		return 0, err
	}
	what := "write " + r.Event.Subject()
	if err := c.before(ctx, what, overNATS); err != nil {
		return 0, err
	}
	for c.w.full(eventsFull) {
		if !retry.Pause(ctx, retry.Store.Max) {
			return 0, fmt.Errorf("sim: store %s: %w", r.Event.Subject(), context.Cause(ctx))
		}
	}
	way := c.w.write(c.node, what)
	if !retry.Pause(ctx, way.there) { // it is on its way: it may arrive though nobody waits for it
		if way.arrives {
			time.AfterFunc(way.late, func() { _, _ = c.put(r, body) })
		}
		return 0, fmt.Errorf("sim: store %s: %w", r.Event.Subject(), context.Cause(ctx))
	}
	seq, err := c.put(r, body)
	if errors.Is(err, errUnexplained) {
		retry.Pause(ctx, retry.Unexplained)
		return 0, err
	}
	if !retry.Pause(ctx, way.back) {
		return 0, fmt.Errorf("sim: store %s: %w", r.Event.Subject(), context.Cause(ctx))
	}
	if err := c.after(ctx, what, overNATS); err != nil {
		return 0, err
	}
	if way.back >= ackLost && err == nil { // it asks what became of it: another's event may be the last by now
		c.eventLog.mu.Lock()
		defer c.eventLog.mu.Unlock()
		if last := c.last(historyKey(r.Event.Operation, r.Event.ID), "*", 0); last == nil || last.Sequence != seq {
			return 0, history.ErrFenced
		}
	}
	return seq, err
}

// Last asks any replica of the stream: one may lag behind.
func (c client) Last(ctx context.Context, op messages.Operation, filter string) (history.Entry, error) {
	return c.read(ctx, op, filter, c.w.lag(c.node, filter))
}

// Leader asks the stream's leader.
func (c client) Leader(ctx context.Context, op messages.Operation, filter string) (history.Entry, error) {
	return c.read(ctx, op, filter, 0)
}

func (c client) read(ctx context.Context, op messages.Operation, filter string, ago time.Duration) (history.Entry, error) {
	if err := c.pass(ctx, "read "+filter, overNATS, c.w.latency(c.node, "read "+filter)); err != nil {
		return history.Entry{}, err
	}
	c.eventLog.mu.Lock()
	defer c.eventLog.mu.Unlock()
	key, state := keyOf(filter)
	if strings.HasSuffix(key, "*") { // of any request
		for _, e := range slices.Backward(c.events) {
			if e.op == op && e.state == state && c.there(e) && time.Since(e.At) >= ago {
				return e.Entry, nil
			}
		}
	} else if e := c.last(key, state, ago); e != nil {
		return e.Entry, nil
	}
	return history.Entry{}, nil
}

// open returns the first event of an operation in a state, as bus.EventStore does.
func (c client) open(ctx context.Context, op messages.Operation, state messages.State, from uint64, since time.Time) (
	history.Entry, error,
) {
	if err := c.pass(ctx, "open", overNATS, time.Millisecond); err != nil {
		return history.Entry{}, err
	}
	c.eventLog.mu.Lock()
	defer c.eventLog.mu.Unlock()
	for _, e := range c.events {
		if e.op == op && e.state == state && e.Sequence >= from && (from > 0 || !e.At.Before(since)) && c.there(e) {
			found := e.Entry
			found.Trace = history.Trace{Parent: e.trace}
			return found, nil
		}
	}
	return history.Entry{}, nil
}

// Next returns the first event under a filter at or behind a sequence.
func (c client) Next(ctx context.Context, op messages.Operation, filter string, from uint64) (history.Entry, error) {
	if err := c.pass(ctx, "next "+filter, overNATS, c.w.latency(c.node, "next "+filter)); err != nil {
		return history.Entry{}, err
	}
	c.eventLog.mu.Lock()
	defer c.eventLog.mu.Unlock()
	for _, e := range c.events[min(max(int(from)-1, 0), len(c.events)):] {
		if e.op == op && c.there(e) && wire.MatchSubject(filter, e.Subject) {
			return e.Entry, nil
		}
	}
	return history.Entry{}, nil
}

// forgotten reports whether a history was purged or erased, in part or as a whole.
func (l *eventLog) forgotten(e *stored) bool {
	for _, other := range l.of[historyKey(e.op, e.id)] {
		if !l.there(other) || other.state == messages.Erased {
			return true
		}
	}
	return false
}
