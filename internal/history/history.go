// Package history keeps a request's events as its ledger. Each write is a
// compare-and-set over the last event of the request, so that of any number of
// workers that have the same request in hand exactly one may call the upstream,
// and only that one may tell the outcome.
//
//	read or guess what stands ─► start (started) ─► call ─► finish (the outcome)
//	                              each stored only if nobody wrote in between
package history

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"errand/internal/failpoint"
	"errand/pkg/messages"
)

// Log is where histories are kept: a JetStream stream in the programs, a map in tests.
type Log interface {
	// Append stores r if the last event of its history still has the sequence
	// r.Last (0: there is none), and gives the new event's sequence.
	// ErrConflict: it has not, and nothing was stored. ErrTooLarge: nothing was
	// stored and never will be. Any other error: nobody knows whether it was
	// stored.
	Append(ctx context.Context, r Record) (uint64, error)
	// Last gives the last event under a subject or filter of op; a zero Entry
	// when there is none.
	Last(ctx context.Context, op messages.Operation, filter string) (Entry, error)
}

// Record is one event on its way into a history.
type Record struct {
	Event  messages.Event
	Last   uint64 // sequence of the event it must follow
	Writer string // tells our own write from another's when the acknowledgement was lost
	Trace  Trace
}

// Trace is the W3C trace context of a request, copied to every event about it.
type Trace struct{ Parent, State string }

// Entry is one event as it was stored.
type Entry struct {
	Subject  string
	Sequence uint64
	Body     []byte
}

// ErrConflict means that somebody else wrote to the history in between.
var ErrConflict = errors.New("history: another worker wrote in between")

// ErrForged means that a history holds an event that no worker can have written:
// one that cannot be read, or with a time beyond all that workers wait for. What
// was done for its request is not known, so nothing is; somebody must look at it.
var ErrForged = errors.New("an event in the history is not one of ours")

// farthest is how far ahead a time in an event may lie: an upstream may ask for a
// day, and clocks are never a day apart.
const farthest = 48 * time.Hour

// ErrTooLarge means that the event is larger than the log takes.
var ErrTooLarge = errors.New("history: the event is larger than the servers take")

// Answered means that the request already has its outcome.
type Answered struct {
	State messages.State
	Body  []byte
}

func (e *Answered) Error() string { return "history: already " + string(e.State) }

// Later means that there is no outcome yet and when it is worth coming back.
type Later struct {
	At    time.Time
	Cause error // why, for the log; nil when another worker has the request in hand
}

func (e *Later) Error() string {
	if e.Cause == nil {
		return "history: in another worker's hand"
	}
	return "history: put off: " + e.Cause.Error()
}

func (e *Later) Unwrap() error { return e.Cause }

// Foreign means that the id already belongs to a request with other contents.
type Foreign struct{ ID string }

func (e *Foreign) Error() string { return "history: the id belongs to another request" }

// History is one request's history in one worker's hand. It is not safe for
// concurrent use.
type History struct {
	Log         Log
	Operation   messages.Operation
	ID          string // request id; for batches messages.BatchID
	Fingerprint string // "" is never compared
	Trace       Trace
	Attempt     int // submissions made for the request so far

	last   uint64
	writer string
}

// Prior is what stood in a history when it was taken in hand: nothing, a call
// whose holder died (started), or a request that was put off (deferred).
type Prior struct {
	State   messages.State // "", started or deferred
	Last    []byte         // body of that event
	Started []byte         // body of the last started event, if there is one
}

// Request is one request in a handler's hand.
type Request[R any] struct {
	Body      R
	Prior     Prior
	History   *History
	Published time.Time // when JetStream took it in
	GiveUpAt  time.Time // the default; a request may name its own
}

// Settle runs f over the history as it stands and stores the event that f gives.
// When nothing is known of the request (fresh), it first guesses that there is no
// history, which saves a read; a wrong guess shows at the first write, before
// anything was called, and f runs once more over what is read then.
//
// Errors: *Answered, *Foreign, *Later, ErrConflict, ErrForged, f's own, or the log's.
func (h *History) Settle(ctx context.Context, fresh bool, f func(Prior) (messages.Event, error)) (messages.Event, error) {
	if fresh {
		ev, err := h.finish(ctx, Prior{}, f)
		if !errors.Is(err, ErrConflict) || h.last != 0 {
			return ev, err
		}
		h.Attempt = 0
	}
	prior, err := h.Read(ctx)
	if err != nil {
		return messages.Event{}, err
	}
	return h.finish(ctx, prior, f)
}

func (h *History) finish(ctx context.Context, prior Prior, f func(Prior) (messages.Event, error)) (messages.Event, error) {
	ev, err := f(prior)
	if err != nil {
		return messages.Event{}, err
	}
	return ev, h.Store(ctx, ev.State, ev.Body)
}

// Read reads what stands in the history and takes it in hand. Errors: *Answered
// when it is final, *Foreign when it is another request's, *Later when somebody
// else is on it or it was put off to a later time, ErrForged.
func (h *History) Read(ctx context.Context) (Prior, error) {
	e, err := h.Log.Last(ctx, h.Operation, h.Operation.Filter(h.ID))
	if err != nil || e.Sequence == 0 {
		h.last = 0
		return Prior{}, err
	}
	p := Prior{State: messages.StateOf(e.Subject), Last: e.Body}
	var b struct {
		Attempt     int           `json:"attempt"`
		Fingerprint string        `json:"fingerprint"`
		Deadline    messages.Time `json:"deadline"`
		NotBefore   messages.Time `json:"not_before"`
	}
	now := time.Now()
	if json.Unmarshal(e.Body, &b) != nil || b.Attempt < 0 || b.Attempt > math.MaxInt32 || b.Deadline.Sub(now) > farthest || b.NotBefore.Sub(now) > farthest {
		return Prior{}, fmt.Errorf("history: read %s: %w: sequence %d", h.ID, ErrForged, e.Sequence)
	}
	h.last, h.Attempt = e.Sequence, b.Attempt
	switch p.State {
	case messages.Started:
		p.Started = e.Body
	case messages.Deferred:
		s, err := h.Log.Last(ctx, h.Operation, h.Operation.Subject(messages.Started, h.ID))
		if err != nil {
			return Prior{}, err
		}
		if p.Started = s.Body; s.Body != nil {
			_ = json.Unmarshal(s.Body, &struct {
				F *string `json:"fingerprint"`
			}{&b.Fingerprint})
		}
	}
	switch {
	case h.Fingerprint != "" && b.Fingerprint != "" && b.Fingerprint != h.Fingerprint:
		return Prior{}, &Foreign{ID: h.ID}
	case p.State.Final(h.Operation):
		return Prior{}, &Answered{State: p.State, Body: e.Body}
	case p.State == messages.Started && b.Deadline.After(now):
		return Prior{}, &Later{At: b.Deadline.Time}
	case p.State == messages.Deferred && b.NotBefore.After(now):
		return Prior{}, &Later{At: b.NotBefore.Time}
	}
	return p, nil
}

// Store writes the next event over the last one that this worker saw, abridged if it
// does not fit. ErrConflict means that the request is no longer in this worker's
// hand.
func (h *History) Store(ctx context.Context, s messages.State, body messages.Body) error {
	if s == messages.Started && ctx.Err() != nil {
		return fmt.Errorf("history: store %s: %w", s, context.Cause(ctx)) // it would announce a call that is not made
	}
	if h.writer == "" {
		h.writer = rand.Text()
	}
	ev := h.Event(s, body)
	*body.Head() = messages.Common{RequestID: ev.RequestID(), At: messages.Time{Time: time.Now()}, Attempt: h.Attempt}
	failpoint.Here(failpoint.BeforeStore, string(h.Operation), string(s))
	r := Record{Event: ev, Last: h.last, Writer: h.writer, Trace: h.Trace}
	seq, err := h.Log.Append(ctx, r)
	for errors.Is(err, ErrTooLarge) && messages.Abridge(body) {
		seq, err = h.Log.Append(ctx, r)
	}
	if err != nil {
		return fmt.Errorf("history: store %s: %w", s, err)
	}
	failpoint.Here(failpoint.AfterStore, string(h.Operation), string(s))
	h.last = seq
	return nil
}

// Event is an event of this history.
func (h *History) Event(s messages.State, body messages.Body) messages.Event {
	return messages.Event{Operation: h.Operation, State: s, ID: h.ID, Body: body}
}

// Margin is what a started event's deadline leaves beyond one call: for the store
// itself, and for repetitions after quick refusals to answer.
const Margin = 5 * time.Second
