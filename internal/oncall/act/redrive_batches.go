package act

import (
	"context"

	"errand/internal/history"
	"errand/internal/oncall/inspect"
	"errand/pkg/messages"
)

// batched says which batches of a message are sent when it is run again. The list in its
// outcome is what counts, since nobody may have written since when reopened is stored over
// it; only where that was too long for an event, the batches' own events are looked at.
func (i Item) batched(ctx context.Context, log history.Log, outcome, last history.Entry) (Item, error) {
	var body messages.SendOutcome
	if err := messages.DecodeEvent(outcome.Body, &body); err != nil {
		return i.as(inspect.CannotRun, "its outcome cannot be read"), nil
	}
	proven := map[int]bool{}
	if i.State == messages.Resolved {
		var resolved messages.SendResolved
		if err := messages.DecodeEvent(last.Body, &resolved); err != nil {
			return i.as(inspect.CannotRun, "what was found out of it cannot be read"), nil
		}
		for _, b := range resolved.Evidence.Batches {
			proven[b.Batch] = true
		}
	}
	listed := map[int]messages.State{}
	for _, b := range body.Unsettled {
		listed[b.Batch] = b.State
		if b.State == messages.Uncertain && !proven[b.Batch] {
			i.uncertain = append(i.uncertain, b)
		}
	}
	complete := len(body.Unsettled) == body.UnsettledCount
	started, err := log.Leader(ctx, messages.Send, messages.Send.Subject(messages.Started, i.RequestID))
	if err != nil {
		return i, err
	}
	begun, _ := history.ReadFacts(started.Body) // expired, it has none
	if begun.Fingerprint == i.fingerprint {
		i.batchSize = begun.BatchSize
	}
	if body.UnsettledCount == 0 && i.was.State != messages.Failed { // it could not go on, and says nothing of its batches
		body.Batches, complete = int(begun.Batches), false
	}
	if body.Batches == 1 {
		i.batchSize = messages.MaxBatch // it is one batch of any size that holds it
	}
	for n := 1; n <= body.Batches; n++ {
		state, known := listed[n]
		if !known && complete {
			continue // it was accepted
		}
		if !known {
			b, err := history.BatchOf(ctx, log, i.RequestID, n)
			if err != nil {
				return i, err
			}
			state = b.State
		}
		switch {
		case state == messages.Accepted, proven[n]:
		case state == messages.Refused, state == messages.Deferred:
			i.Batches = append(i.Batches, n)
		default:
			i.Unknown = append(i.Unknown, n)
		}
	}
	switch {
	case body.Batches == 0 && i.was.State == messages.Failed && !i.afterUnknown:
		return i.as(inspect.Safe, "no call was made"), nil
	case body.Batches == 0:
		return i.as(inspect.CannotRun, "its outcome does not say which batches are open"), nil
	case len(i.Batches)+len(i.Unknown) == 0:
		return i.as(inspect.WasDone, "every batch was accepted"), nil
	case len(i.Batches) == body.Batches && i.batchSize == 0: // nothing was done: it may be cut in any way
		said := i.Batched()
		i.Batches = nil
		return i.as(inspect.Safe, "%s", said), nil
	case i.batchSize == 0:
		return i.as(inspect.CannotRun, "the event that says how it was cut into batches is gone: publish to whom it is still meant for, "+
			"under another id"), nil
	case len(i.Batches) == body.Batches:
		return i.as(inspect.Safe, "%s", i.Batched()), nil
	case len(i.Unknown) == 0:
		return i.as(inspect.Safe, "%s; the others are not sent again", i.Batched()), nil
	case len(i.Batches) == 0:
		return i.as(inspect.Twice, "%s: its recipients may have the mail already", i.Batched()), nil
	}
	return i.as(inspect.Twice, "%s: without accepting that, only the former are sent", i.Batched()), nil
}
