package history

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"errand/internal/retry"
	"errand/pkg/messages"
)

// Prior is what a history held when it was read: nothing (no State), a call whose maker
// died (started), a request that waits (deferred), a listing under way (page), or one that
// was opened again (reopened).
type Prior struct {
	State   messages.State
	Last    []byte // body of that event
	Started []byte // body of the last started event, if there is one
	// Again: a person has said that it is to be done though a call of unknown fate was made,
	// and no call of such a fate was made since.
	Again bool
	Facts
}

// Facts are what handlers ask of the last event, whatever it is.
type Facts struct {
	At           messages.Time         `json:"at"`
	NotBefore    messages.Time         `json:"not_before"`
	Deadline     messages.Time         `json:"deadline"`      // of the announced call; started only
	AfterUnknown bool                  `json:"after_unknown"` // a call of unknown fate was made
	Unknown      messages.Reason       `json:"unknown"`       // why it is unknown, while that is found out
	HeldCount    int                   `json:"held_count"`    // how often it met held while others succeeded
	Reason       messages.Reason       `json:"reason"`        // of reopened: that of the outcome before
	Message      string                `json:"message"`
	HTTPStatus   int                   `json:"http_status"`
	Was          messages.PriorOutcome `json:"was"` // of reopened
}

// Waited is how long the request was deferred for; 0 when it was not.
func (p Prior) Waited() time.Duration {
	if p.State != messages.Deferred {
		return 0
	}
	return max(p.NotBefore.Sub(p.At.Time), 0)
}

// Acted reports whether something may have been done upstream already, or was: such a request
// cannot end failed without a further look.
func (p Prior) Acted() bool {
	return p.State == messages.Started || p.AfterUnknown || p.State == messages.Reopened && p.Was.State != "" && p.Was.State != messages.Failed
}

// Read reads what is in the history; what is stored next follows that. Errors:
// *AlreadyDoneError when it is final, *ConflictError when it is another request's,
// *RetryLaterError when somebody else is on it or it was deferred to a later time, ErrCorrupt.
func (h *History) Read(ctx context.Context) (Prior, error) {
	e, err := h.Log.Last(ctx, h.Operation, h.Operation.Filter(h.ID))
	if err != nil || e.Sequence == 0 {
		h.last = 0
		return Prior{}, err
	}
	var b struct {
		Attempt     int    `json:"attempt"`
		Fingerprint string `json:"fingerprint"`
		Facts
	}
	now := time.Now()
	if json.Unmarshal(e.Body, &b) != nil || b.Attempt < 0 || b.Attempt > math.MaxInt32 || b.Deadline.Sub(now) > farthest || b.NotBefore.Sub(now) > farthest {
		return Prior{}, h.corrupt(e)
	}
	p := Prior{State: messages.StateOf(e.Subject), Last: e.Body, Facts: b.Facts}
	own := e.Sequence == h.last // stored by this very worker
	h.last, h.Attempt = e.Sequence, b.Attempt
	switch p.State {
	case messages.Started:
		p.Started = e.Body
	case messages.Deferred, messages.Reopened:
		if err = h.behind(ctx, &p, &b.Fingerprint); err != nil {
			return Prior{}, err
		}
	}
	switch {
	case p.State == messages.Reopened && b.Fingerprint == "": // nobody knows what is to be run
		return Prior{}, h.corrupt(e)
	case h.Fingerprint != "" && b.Fingerprint != "" && b.Fingerprint != h.Fingerprint:
		conflict := &ConflictError{ID: h.ID}
		if p.State == messages.Failed && !p.AfterUnknown {
			conflict.failed = &failure{p.Reason}
		}
		return Prior{}, conflict
	case h.ReopenedAt > e.Sequence && (p.State == messages.Refused || p.State == messages.Uncertain && h.Named):
		return h.reopenedBatch(ctx, p)
	case p.State.Final(h.Operation):
		return Prior{}, &AlreadyDoneError{State: p.State, Body: e.Body, Sequence: e.Sequence}
	case (p.State == messages.Started || p.State == messages.Page) && b.Deadline.After(now) && !own:
		return Prior{}, &RetryLaterError{At: b.Deadline.Time}
	case p.State == messages.Deferred && b.NotBefore.After(now):
		return Prior{}, &RetryLaterError{At: b.NotBefore.Time}
	case !slices.Contains([]messages.State{messages.Started, messages.Deferred, messages.Reopened, messages.Page}, p.State):
		return Prior{}, &RetryLaterError{At: now.Add(retry.Newer), Cause: fmt.Errorf("the state %q is for a newer program", messages.Cut(string(p.State)))}
	}
	return p, nil
}

func (h *History) corrupt(e Entry) error {
	return fmt.Errorf("history: read %s: %w: sequence %d", h.ID, ErrCorrupt, e.Sequence)
}

// replicaReads is how often an event is asked for that must be there: another replica of the
// stream may answer each time.
const replicaReads = 10

// behind reads what is behind a deferred or reopened event. fingerprint is that of the event,
// and becomes the request's.
func (h *History) behind(ctx context.Context, p *Prior, fingerprint *string) error {
	if p.State == messages.Reopened {
		p.Reason = p.Was.Reason
	}
	started, err := h.Log.Last(ctx, h.Operation, h.Operation.Subject(messages.Started, h.ID))
	// What is deferred was started: a replica that shows no such event lags behind the one that was asked before.
	for n := 1; err == nil && started.Body == nil && p.State == messages.Deferred && n < replicaReads && retry.Pause(ctx, retry.ReplicaRead); n++ {
		started, err = h.Log.Last(ctx, h.Operation, h.Operation.Subject(messages.Started, h.ID))
	}
	if err != nil {
		return err
	}
	if started.Body != nil {
		var b struct {
			Fingerprint string `json:"fingerprint"`
		}
		_ = json.Unmarshal(started.Body, &b) // what cannot be read names none
		if p.State == messages.Deferred {
			*fingerprint = b.Fingerprint
		}
		if b.Fingerprint == *fingerprint { // else it is of other contents, that were corrected
			p.Started = started.Body
		}
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
	e, err := h.Log.Last(ctx, h.Operation, h.Operation.Subject(messages.Reopened, h.ID))
	if err != nil || e.Body == nil {
		return false, err
	}
	var reopened messages.Common
	_ = messages.DecodeEvent(e.Body, &reopened)
	noCall := e.Sequence > started && h.Attempt <= reopened.Attempt // since then; of started a replica may lag behind
	return h.redriven(e.Body) && (noCall || nothingDone), nil
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

// reopenedBatch is a batch that is run once more since its request was opened again.
func (h *History) reopenedBatch(ctx context.Context, p Prior) (Prior, error) {
	unknown := p.State == messages.Uncertain
	p.State, p.Last, p.AfterUnknown, p.Again = messages.Reopened, nil, unknown, unknown
	if !unknown {
		return Prior{State: messages.Reopened}, nil
	}
	started, err := h.Log.Last(ctx, h.Operation, h.Operation.Subject(messages.Started, h.ID))
	p.Started, p.Was = started.Body, messages.PriorOutcome{State: messages.Uncertain, Reason: p.Reason}
	return p, err
}
