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
	}
	complete := len(body.Unsettled) == body.UnsettledCount
	if body.UnsettledCount == 0 && i.was.State != messages.Failed { // it could not go on, and says nothing of its batches
		started, err := log.Last(ctx, messages.Send, messages.Send.Subject(messages.Started, i.RequestID))
		if err != nil {
			return i, err
		}
		var begun messages.SendStarted
		_ = messages.DecodeEvent(started.Body, &begun) // expired, it has none
		body.Batches, complete = begun.Batches, false
	}
	for n := 1; n <= body.Batches; n++ {
		state, known := listed[n]
		if !known && complete {
			continue // it was accepted
		}
		if !known {
			var err error
			if state, err = stateOfBatch(ctx, log, i.RequestID, n); err != nil {
				return i, err
			}
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
	case len(i.Batches) == body.Batches:
		return i.as(inspect.Safe, "%s", i.Batched()), nil
	case len(i.Unknown) == 0:
		return i.as(inspect.Safe, "%s; the others are not sent again", i.Batched()), nil
	case len(i.Batches) == 0:
		return i.as(inspect.Twice, "%s: its recipients may have the mail already", i.Batched()), nil
	}
	return i.as(inspect.Twice, "%s: without accepting that, only the former are sent", i.Batched()), nil
}

// stateOfBatch is the state of a batch in its own history; Uncertain where nobody knows.
func stateOfBatch(ctx context.Context, log history.Log, id string, n int) (messages.State, error) {
	e, err := log.Last(ctx, messages.Batch, messages.Batch.Filter(messages.BatchID(id, n)))
	if err != nil {
		return "", err
	}
	var body messages.BatchBody
	switch state := messages.StateOf(e.Subject); {
	case state == messages.Accepted, state == messages.Refused:
		return state, nil
	case state == messages.Deferred && messages.DecodeEvent(e.Body, &body) == nil && !body.AfterUnknown:
		return state, nil
	}
	return messages.Uncertain, nil
}
