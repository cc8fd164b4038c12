package history

import (
	"cmp"
	"context"
	"slices"

	"errand/pkg/messages"
)

// behind reads what is behind a deferred or reopened event.
func (h *History) behind(ctx context.Context, p *Prior) error {
	if p.State == messages.Reopened {
		p.Reason = p.Was.Reason
	}
	started, err := h.Log.Leader(ctx, h.Operation, h.Operation.Subject(messages.Started, h.ID))
	if err != nil {
		return err
	}
	begun, _ := ReadFacts(started.Body) // what cannot be read names none
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
	return p.State == messages.Refused || sentToNobody(p.State, p.Facts) || Unfinished(p.State, p.Facts) == messages.Deferred
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

// LeftOut reports whether a batch is not among those that a person's redrive named, if it named any. It is not sent then.
func LeftOut(named []int, number int) bool { return len(named) > 0 && !slices.Contains(named, number) }
