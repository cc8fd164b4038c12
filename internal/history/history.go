// Package history keeps a request's events as its ledger. Each write is a compare-and-set over the last event of the
// request, so that of any number of workers that have the same request exactly one may call the upstream, and only that one
// may publish the outcome.
//
//	read or guess what is there ─► started ─► call ─► the outcome
//	                               each stored only if nobody wrote in between
package history

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"errand/internal/failpoint"
	"errand/internal/retry"
	"errand/internal/wire"
	"errand/pkg/messages"
)

// Log is where histories are kept: a JetStream stream in the programs, a map in tests.
type Log interface {
	// Append stores r if the last event of its history still has the sequence r.Last (0 means none), and returns the new
	// event's sequence. ErrFenced means that it does not, and nothing was stored; ErrTooLarge that nothing was stored and
	// never will be. After any other error it may have been stored.
	Append(ctx context.Context, r Record) (uint64, error)
	// Last returns the last event under a subject or filter of op; a zero Entry
	// when there is none. A replica may answer that lags behind.
	Last(ctx context.Context, op messages.Operation, filter string) (Entry, error)
	// Leader returns what Last does, as the stream's leader has it.
	Leader(ctx context.Context, op messages.Operation, filter string) (Entry, error)
	// Next returns the first event under a filter at or behind a sequence, as the leader has it.
	Next(ctx context.Context, op messages.Operation, filter string, from uint64) (Entry, error)
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
	At       time.Time // when it was stored, by the clock that says when requests were taken in
	Body     []byte
	Trace    Trace // as a Log returns it
}

// ID is the id in the event's subject.
func (e Entry) ID() string { return messages.ParseSubject(e.Subject).ID }

// ErrFenced means that another worker wrote to the history in between.
var ErrFenced = errors.New("history: another worker wrote in between")

// ErrCorrupt means that a history holds an event that no worker can have written: one that cannot be read, or with a time
// beyond all that workers wait for. What was done for its request is not known, so nothing is; a person must look at it.
var ErrCorrupt = errors.New("an event in the history was not written by errand")

// ErrTooLarge means that the event is larger than the log takes.
var ErrTooLarge = errors.New("history: the event is larger than the servers take")

// ErrScheduled is the cause of a RetryLaterError: the request is deferred until the time that it names itself.
var ErrScheduled = errors.New("scheduled")

// farthest is how far ahead a time in an event may lie: an upstream may ask for a day, and clocks are never a day apart.
const farthest = 48 * time.Hour

// serverClocks is more than the clocks of two servers differ by.
const serverClocks = time.Minute

// AlreadyDoneError means that the request already has its outcome.
type AlreadyDoneError struct {
	State    messages.State
	Body     []byte
	Sequence uint64
	At       time.Time // when it was stored
}

func (e *AlreadyDoneError) Error() string { return "history: already " + string(e.State) }

// RetryLaterError means that there is no outcome yet and when it is worth coming back.
type RetryLaterError struct {
	At    time.Time
	Cause error // why, for the log; nil when another worker has the request
}

func (e *RetryLaterError) Error() string {
	if e.Cause == nil {
		return "another worker has it"
	}
	return "deferred: " + e.Cause.Error()
}

func (e *RetryLaterError) Unwrap() error { return e.Cause }

// History is one request's history, for one worker. It is not safe for concurrent use.
type History struct {
	Log         Log
	Operation   messages.Operation
	ID          string    // request id; for batches messages.BatchID
	Fingerprint string    // "" is never compared
	Published   time.Time // when JetStream took the request in
	// Numbered means that the id is the request's number in its queue, which begins at one when the queue is made again.
	Numbered bool
	// Corrects reports whether the request may be run now, and so may correct one that failed before; nil means that it may not.
	Corrects func(context.Context) (bool, error)
	Trace    Trace
	Lane     string // that the request came in; "" for messages.DefaultLane
	Attempt  int    // submissions made for the request so far
	// ReopenedAt is the sequence of the event that opened the batch's request again: what
	// was refused before that is run once more. 0 when it was not.
	ReopenedAt uint64
	// Named means that this event names the batch. It is run once more though its fate is unknown.
	Named bool

	last   uint64
	writer string
}

// Settle runs f over what is in the history and stores the event that f returns. When nothing is known of the request
// (fresh), it first guesses that there is no history, which saves a read; a wrong guess shows at the first write, before
// anything was called, and f runs once more over what is read then.
//
// Errors: *AlreadyDoneError, *ConflictError, *RetryLaterError, ErrFenced, ErrCorrupt, f's own, or the log's.
func (h *History) Settle(ctx context.Context, fresh bool, f func(Prior) (messages.Event, error)) (messages.Event, error) {
	if fresh {
		ev, err := h.finish(ctx, Prior{}, f)
		if !errors.Is(err, ErrFenced) || h.last != 0 {
			return ev, err
		}
		h.Attempt = 0
	}
	prior, err := h.Read(ctx)
	if conflict, ok := errors.AsType[*ConflictError](err); ok {
		prior, err = h.correct(ctx, conflict)
	}
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

// Store writes the next event over the last one that this worker knows, abridged if it
// does not fit. ErrFenced means that another worker wrote in between.
func (h *History) Store(ctx context.Context, s messages.State, body messages.Body) error {
	if s == messages.Started && ctx.Err() != nil {
		return fmt.Errorf("history: store %s: %w", s, context.Cause(ctx)) // it would announce a call that is not made
	}
	if h.writer == "" {
		h.writer = rand.Text()[:13] // 65 bits: it is in every event, and tells a few workers apart
	}
	ev := h.Event(s, body)
	*body.Head() = messages.Common{RequestID: ev.RequestID(), At: messages.Time{Time: time.Now()}, Attempt: h.Attempt, Lane: h.Lane}
	failpoint.Here(failpoint.BeforeStore, string(h.Operation), string(s))
	r := Record{Event: ev, Last: h.last, Writer: h.writer, Trace: h.Trace}
	seq, err := h.Log.Append(ctx, r)
	for errors.Is(err, ErrTooLarge) && Abridge(body) {
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

// Sequence is the sequence of the last event that this worker knows.
func (h *History) Sequence() uint64 { return h.last }

// Prior is what a history held when it was read: nothing (no State), a call whose maker died (started), a request that
// waits (deferred), a listing under way (page), or one that was opened again (reopened).
type Prior struct {
	State   messages.State
	Last    []byte // body of that event
	Started []byte // body of the last started event, if there is one
	// Again: a person said to do it though a call of unknown fate was made, and no such call was made since.
	Again bool
	Facts // of the last event; reopened has the reason of the outcome before
}

// Waited is how long the request was deferred for; 0 when it was not, or because it was scheduled.
func (p Prior) Waited() time.Duration {
	if p.State != messages.Deferred || p.Reason == messages.ReasonScheduled {
		return 0
	}
	return max(p.NotBefore.Sub(p.At.Time), 0)
}

// Read reads what is in the history; what is stored next follows that. Errors:
// *AlreadyDoneError when it is final, *ConflictError when it is another request's,
// *RetryLaterError when another worker has it or it was deferred to a later time, ErrCorrupt.
func (h *History) Read(ctx context.Context) (Prior, error) {
	e, err := h.newest(ctx)
	if err != nil || e.Sequence == 0 {
		h.last = 0
		return Prior{}, err
	}
	now := time.Now()
	f, err := ReadFacts(e.Body)
	wait := farthest
	if f.Reason == messages.ReasonScheduled {
		wait += wire.MaxNotBefore
	}
	if err != nil || f.Attempt < 0 || f.Attempt > math.MaxInt32 || f.Deadline.Sub(now) > farthest || f.NotBefore.Sub(now) > wait {
		return Prior{}, h.corrupt(e)
	}
	p := Prior{State: messages.StateOf(e.Subject), Last: e.Body, Facts: f}
	own := e.Sequence == h.last // stored by this very worker
	h.last, h.Attempt = e.Sequence, f.Attempt
	switch p.State {
	case messages.Started:
		p.Started = e.Body
	case messages.Deferred, messages.Reopened:
		if err = h.behind(ctx, &p); err != nil {
			return Prior{}, err
		}
	}
	switch {
	case p.State == messages.Reopened && p.Fingerprint == "": // nobody knows what is to be run
		return Prior{}, h.corrupt(e)
	case h.Numbered && h.Follows(e.At):
		return Prior{}, &ConflictError{ID: h.ID, Older: true}
	case h.Fingerprint != "" && p.Fingerprint != "" && p.Fingerprint != h.Fingerprint:
		conflict := &ConflictError{ID: h.ID}
		if p.State == messages.Failed && !p.AfterUnknown {
			conflict.failed = &p.Reason
		}
		return Prior{}, conflict
	case (p.State == messages.Started || p.State == messages.Page) && p.Deadline.After(now) && !own:
		return Prior{}, &RetryLaterError{At: p.Deadline.Time}
	case h.ReopenedAt > e.Sequence && (p.nothingDone() || h.Named && p.inDoubt()):
		return h.reopenedBatch(ctx, p)
	case p.State.Final(h.Operation):
		return Prior{}, &AlreadyDoneError{State: p.State, Body: e.Body, Sequence: e.Sequence, At: e.At}
	case p.State == messages.Deferred && p.NotBefore.After(now):
		later := &RetryLaterError{At: p.NotBefore.Time}
		if p.Reason == messages.ReasonScheduled {
			later.Cause = ErrScheduled
		}
		return Prior{}, later
	case !slices.Contains([]messages.State{messages.Started, messages.Deferred, messages.Reopened, messages.Page}, p.State):
		newer := fmt.Errorf("the state %q is for a newer program", wire.Cut(string(p.State)))
		return Prior{}, &RetryLaterError{At: now.Add(retry.Newer), Cause: newer}
	}
	return p, nil
}

// Follows reports whether the request was surely published after an event that was stored at a time.
func (h *History) Follows(at time.Time) bool { return at.Before(h.Published.Add(-serverClocks)) }

func (h *History) corrupt(e Entry) error {
	return fmt.Errorf("history: read %s: %w: sequence %d", h.ID, ErrCorrupt, e.Sequence)
}

// newest is the last event of the history. Any replica may say that these contents have ended, which repeats ask; all else
// is asked of the leader, since a replica that lags behind would mislead. So would one that shows how these contents failed
// before they were published again: others may have corrected them, and these correct those.
func (h *History) newest(ctx context.Context) (Entry, error) {
	filter := h.Operation.Filter(h.ID)
	e, err := h.Log.Last(ctx, h.Operation, filter)
	if err != nil {
		return e, err
	}
	state := messages.StateOf(e.Subject)
	corrected := state == messages.Failed && e.At.Before(h.Published) // or may have been since
	if e.Sequence > h.ReopenedAt && state.Final(h.Operation) && !corrected {
		if f, _ := ReadFacts(e.Body); f.Fingerprint == h.Fingerprint {
			return e, nil
		}
	}
	return h.Log.Leader(ctx, h.Operation, filter)
}

// ConflictError means that the id already belongs to a request with other contents.
type ConflictError struct {
	ID    string
	Older bool // it was the number of an earlier queue's
	// failed is why that one failed, if it did without any effect, so that these contents may correct it.
	failed *messages.Reason
}

func (e *ConflictError) Error() string { return "history: the id belongs to another request" }

// correct opens a request again that failed without any effect, with other contents. Contents that failed here themselves
// before they were corrected are delivered again: *AlreadyDoneError. The conflict remains where they are older than the ones
// that failed, or where something was done.
func (h *History) correct(ctx context.Context, conflict *ConflictError) (Prior, error) {
	done, err := h.formerly(ctx)
	switch {
	case err != nil:
		return Prior{}, err
	case done != nil:
		return Prior{}, done
	case conflict.failed == nil || h.Corrects == nil:
		return Prior{}, conflict
	}
	if may, err := h.Corrects(ctx); err != nil || !may {
		return Prior{}, cmp.Or(err, error(conflict))
	}
	e, err := h.Log.Leader(ctx, h.Operation, h.Operation.Subject(messages.Reopened, h.ID))
	if err != nil {
		return Prior{}, err
	}
	switch {
	case e.Sequence > h.last: // maybe for this very request
		return Prior{}, ErrFenced
	case e.Sequence > 0 && h.Published.Before(e.At):
		return Prior{}, conflict
	}
	was := messages.PriorOutcome{State: messages.Failed, Reason: *conflict.failed}
	err = h.Store(ctx, messages.Reopened, &messages.ReopenedBody{By: messages.ByCorrection, Was: was, Fingerprint: h.Fingerprint})
	return Prior{State: messages.Reopened, Facts: Facts{Was: was, Fingerprint: h.Fingerprint}}, err
}

// formerly finds how these contents failed last after they were published, if they did.
func (h *History) formerly(ctx context.Context) (done *AlreadyDoneError, err error) {
	subject := h.Operation.Subject(messages.Failed, h.ID)
	for from := uint64(1); ; {
		e, err := h.Log.Next(ctx, h.Operation, subject, from)
		if err != nil || e.Sequence == 0 {
			return done, err
		}
		if f, _ := ReadFacts(e.Body); f.Fingerprint == h.Fingerprint && !e.At.Before(h.Published) {
			done = &AlreadyDoneError{State: messages.Failed, Body: e.Body, Sequence: e.Sequence, At: e.At}
		}
		from = e.Sequence + 1
	}
}
