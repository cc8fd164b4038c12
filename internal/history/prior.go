package history

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"errand/internal/retry"
	"errand/pkg/messages"
)

// Prior is what a history held when it was read: nothing (no State), a call whose maker died (started), a request that
// waits (deferred), a listing under way (page), or one that was opened again (reopened).
type Prior struct {
	State   messages.State
	Last    []byte // body of that event
	Started []byte // body of the last started event, if there is one
	// Again: a person said to do it though a call of unknown fate was made, and no such call was made since.
	Again          bool
	messages.Facts // of the last event; the reason of reopened is that of the outcome before
}

// Waited is how long the request was deferred for; 0 when it was not.
func (p Prior) Waited() time.Duration {
	if p.State != messages.Deferred {
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
	f, err := messages.ReadFacts(e.Body)
	if err != nil || f.Attempt < 0 || f.Attempt > math.MaxInt32 || f.Deadline.Sub(now) > farthest || f.NotBefore.Sub(now) > farthest {
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
		return Prior{}, &AlreadyDoneError{State: p.State, Body: e.Body, Sequence: e.Sequence}
	case p.State == messages.Deferred && p.NotBefore.After(now):
		return Prior{}, &RetryLaterError{At: p.NotBefore.Time}
	case !slices.Contains([]messages.State{messages.Started, messages.Deferred, messages.Reopened, messages.Page}, p.State):
		newer := fmt.Errorf("the state %q is for a newer program", messages.Cut(string(p.State)))
		return Prior{}, &RetryLaterError{At: now.Add(retry.Newer), Cause: newer}
	}
	return p, nil
}

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
		if f, _ := messages.ReadFacts(e.Body); f.Fingerprint == h.Fingerprint {
			return e, nil
		}
	}
	return h.Log.Leader(ctx, h.Operation, filter)
}

// behind reads what is behind a deferred or reopened event.
func (h *History) behind(ctx context.Context, p *Prior) error {
	if p.State == messages.Reopened {
		p.Reason = p.Was.Reason
	}
	started, err := h.Log.Leader(ctx, h.Operation, h.Operation.Subject(messages.Started, h.ID))
	if err != nil {
		return err
	}
	begun, _ := messages.ReadFacts(started.Body) // what cannot be read names none
	if p.State == messages.Deferred {
		p.Fingerprint = cmp.Or(p.Fingerprint, begun.Fingerprint)
	}
	if begun.Fingerprint == p.Fingerprint { // else it is of other contents, that were corrected
		p.Started = started.Body
	}
	p.Again, err = h.again(ctx, *p, started.Sequence)
	return err
}

// again reports whether a person's redrive still holds: over its own event, and over a
// deferral for which no call of unknown fate was made since.
func (h *History) again(ctx context.Context, p Prior, started uint64) (bool, error) {
	nothingDone := p.Reason == messages.ReasonBusy || p.Reason == messages.ReasonHeld // of the call that was deferred
	switch {
	case !p.AfterUnknown:
		return false, nil
	case h.Operation == messages.Batch:
		return h.Named && p.State == messages.Deferred && h.last > h.ReopenedAt && nothingDone, nil
	case p.State == messages.Reopened:
		return h.redriven(p.Last), nil
	}
	e, err := h.Log.Leader(ctx, h.Operation, h.Operation.Subject(messages.Reopened, h.ID))
	if err != nil || e.Body == nil {
		return false, err
	}
	return h.redriven(e.Body) && (e.Sequence > started || nothingDone), nil
}

// redriven reports whether a reopened event is of a person who said that what may have been
// done already is to be done; of a message, that its one batch is.
func (h *History) redriven(body []byte) bool {
	var b messages.ReopenedBody
	if messages.DecodeEvent(body, &b) != nil || b.By == messages.ByCorrection || !b.AfterUnknown {
		return false
	}
	return h.Operation != messages.Send || slices.Contains(b.Batches, 1)
}

// nothingDone reports whether surely nothing was done for a batch that had its turn.
func (p Prior) nothingDone() bool {
	return p.State == messages.Refused || Unfinished(p.State, p.Facts) == messages.Deferred
}

// inDoubt reports whether a batch may have been sent. Its message may have ended before that was written down.
func (p Prior) inDoubt() bool {
	return p.State == messages.Uncertain || p.State == messages.Started || p.State == messages.Deferred
}

// reopenedBatch is a batch that is run once more since its request was opened again. It begins anew: it neither waits for what
// it waited for before, nor counts what it met.
func (h *History) reopenedBatch(ctx context.Context, p Prior) (Prior, error) {
	if p.nothingDone() {
		return Prior{State: messages.Reopened}, nil
	}
	if p.State == messages.Started {
		p.Reason = messages.ReasonInterrupted
	}
	p.State, p.Last, p.AfterUnknown, p.Again, p.HeldCount = messages.Reopened, nil, true, true, 0
	started, err := h.Log.Leader(ctx, h.Operation, h.Operation.Subject(messages.Started, h.ID))
	p.Started, p.Was = started.Body, messages.PriorOutcome{State: messages.Uncertain, Reason: p.Reason}
	return p, err
}
