package history

import (
	"cmp"
	"context"

	"errand/pkg/messages"
)

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
			done = &AlreadyDoneError{State: messages.Failed, Body: e.Body, Sequence: e.Sequence}
		}
		from = e.Sequence + 1
	}
}
