package history

import (
	"cmp"
	"context"

	"errand/pkg/messages"
)

// Effect is what was done upstream for a request, as far as its events say. The zero value: surely nothing.
type Effect struct {
	Done    bool // a part was done, or all
	Unknown bool // a part may have been done
	// Batches are the batches of a message of several, in order, and Began is its started event, if that is still there.
	Batches []Batch
	Began   Facts
}

// None reports whether surely nothing was done.
func (e Effect) None() bool { return !e.Done && !e.Unknown }

// Batch is what became of one batch of a message.
type Batch struct {
	Number int // from 1
	// State is accepted, refused, deferred (nothing was done), uncertain, or "" if the batch has no event.
	State messages.State
	Facts
}

// EffectOf returns what was done for a request. last is its last event, as Read or the log returned it. Errors: the log's.
func EffectOf(ctx context.Context, log Log, op messages.Operation, id string, last Prior) (e Effect, err error) {
	switch {
	case last.AfterUnknown:
		e.Unknown = true
	case last.State == messages.Reopened:
		e.of(last.Was.State)
	case last.State == messages.Resolved:
		e.of(last.Outcome)
	default:
		e.of(last.State)
	}
	if last.State == "" {
		return e, nil
	}
	began := last.Started
	if began == nil && last.State == messages.Started {
		began = last.Last
	}
	if began == nil {
		started, err := log.Leader(ctx, op, op.Subject(messages.Started, id))
		if err != nil {
			return e, err
		}
		began = started.Body
	}
	begun, _ := ReadFacts(began)                                          // gone, it says nothing
	if begun.Fingerprint == cmp.Or(last.Fingerprint, begun.Fingerprint) { // else it is of other contents, that were corrected
		e.Began = begun
	}
	switch {
	case op != messages.Send:
	case began == nil && last.State == messages.Deferred && last.Reason != messages.ReasonScheduled:
		e.Unknown = true // nobody knows whether it had batches
	case e.Began.Batches > 1:
		return e, e.read(ctx, log, id)
	}
	return e, nil
}

// of notes what the state of a request, or of a message of one batch, says.
func (e *Effect) of(s messages.State) {
	switch s {
	case messages.Started, messages.Uncertain:
		e.Unknown = true
	case messages.Accepted, messages.Partial, messages.Succeeded:
		e.Done = true
	}
}

// read reads the batches: what the message's own event says of a call is theirs to say. Those without an event had no turn
// yet, unless a person opened the message again: then they may be older, and have expired.
func (e *Effect) read(ctx context.Context, log Log, id string) error {
	*e = Effect{Began: e.Began, Batches: make([]Batch, e.Began.Batches)}
	var silent []int
	for i := range e.Batches {
		b, err := BatchOf(ctx, log, id, i+1)
		if err != nil {
			return err
		}
		if e.Batches[i] = b; b.State == "" {
			silent = append(silent, i)
		}
		if !sentToNobody(b.State, b.Facts) {
			e.of(b.State)
		}
	}
	if len(silent) == 0 {
		return nil
	}
	last, err := log.Leader(ctx, messages.Send, messages.Send.Subject(messages.Reopened, id))
	if err != nil || last.Sequence == 0 {
		return err
	}
	var said messages.ReopenedBody
	unread := messages.DecodeEvent(last.Body, &said)
	for _, i := range silent {
		if b := &e.Batches[i]; unread != nil || LeftOut(said.Batches, b.Number) || said.AfterUnknown && len(said.Batches) > 0 {
			b.State = Unfinished(b.State, b.Facts)
			e.of(b.State)
		}
	}
	return nil
}

// sentToNobody reports whether a batch ended without a call, because all its recipients are suppressed.
func sentToNobody(last messages.State, f Facts) bool {
	return last == messages.Accepted && f.Accepted == 0 && f.Reason == "" && len(f.Suppressed) > 0
}

// Unfinished is what a batch without an end is: deferred if surely nothing was done, or else uncertain. So is one without an
// event that was left out of a redrive: its events are older than that and may have expired before it.
func Unfinished(last messages.State, f Facts) messages.State {
	if last == messages.Deferred && !f.AfterUnknown {
		return messages.Deferred
	}
	return messages.Uncertain
}

// BatchOf returns what became of one batch of a message, from 1.
func BatchOf(ctx context.Context, log Log, id string, number int) (Batch, error) {
	last, err := log.Leader(ctx, messages.Batch, messages.Batch.Filter(messages.BatchID(id, number)))
	b := Batch{Number: number}
	if err != nil || last.Sequence == 0 {
		return b, err
	}
	f, unreadable := ReadFacts(last.Body)
	b.State, b.Facts = messages.StateOf(last.Subject), f
	if b.State != messages.Accepted && b.State != messages.Refused {
		f.AfterUnknown = f.AfterUnknown || unreadable != nil
		b.State = Unfinished(b.State, f)
	}
	return b, nil
}
