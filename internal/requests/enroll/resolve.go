package enroll

import (
	"context"
	"errors"
	"time"

	"github.com/rs/zerolog"

	"errand/internal/history"
	"errand/internal/mandates"
	"errand/internal/retry"
	"errand/pkg/messages"
)

// Resolver looks enrollments that ended uncertain up again, and publishes what the transaction list shows of them.
//
//	uncertain ─► look at each age ─┬─ listed, or its state is final ─► resolved
//	                               ├─ not listed, a day old ─────────► resolved: failed
//	                               └─ else ──────────────────────────► the next age
//
// Several programs may look at once; the history takes one answer.
type Resolver struct {
	List *mandates.List // by Settle what is not listed was not made
	// Held reports whether the service is not to be asked now.
	Held func() bool
	Log  history.Log
	// Next returns the enrollments that ended uncertain: see mandates.FollowUp.
	Next     func(ctx context.Context, from uint64, since time.Time) (history.Pending, error)
	Resolved func(outcome messages.State)
	Logger   zerolog.Logger

	WithoutPayer bool // events hold nothing of the payer
}

// Run works until ctx ends. What is open then is looked at again by the next program.
func (r *Resolver) Run(ctx context.Context) {
	looks := &mandates.FollowUp{What: "an uncertain enrollment", Ages: retry.ResolveAges, Policy: r.List.Policy, Logger: r.Logger,
		Next: r.Next, Held: r.Held,
		Look: func(ctx context.Context, o history.Pending, _, age time.Duration) (bool, error) {
			return r.look(ctx, o, age)
		}}
	looks.Run(ctx)
}

// look looks one enrollment up if it is still uncertain, and stores what the list shows. asked: the service was.
func (r *Resolver) look(ctx context.Context, o history.Pending, age time.Duration) (looked bool, err error) {
	h := &history.History{Log: r.Log, Operation: messages.Enroll, ID: o.ID, Trace: o.Trace}
	_, err = h.Read(ctx)
	answered, ok := errors.AsType[*history.AlreadyDoneError](err)
	switch {
	case !ok && (errors.Is(err, history.ErrCorrupt) || ctx.Err() != nil):
		return false, err
	case !ok || answered.State != messages.Uncertain: // a read may lag behind: then the next look sees it
		return false, nil
	}
	var was messages.EnrollUncertain
	if err := messages.DecodeEvent(answered.Body, &was); err != nil {
		return false, err
	}
	first, err := r.Log.Next(ctx, messages.Enroll, messages.Enroll.Filter(o.ID), 1)
	if err != nil || first.Sequence == 0 || first.Sequence > o.Sequence {
		return false, err
	}
	found, err := r.List.Prove(ctx, mandates.Call{Order: was.OrderNumber, Began: first.At.Add(-retry.Margin), Ended: o.At})
	if err != nil {
		return true, err
	}
	outcome := became(found, was, age)
	if outcome == "" {
		return true, nil
	}
	if r.WithoutPayer {
		found.Records = messages.WithoutPayers(found.Records)
	}
	err = h.Store(ctx, messages.Resolved, &messages.EnrollResolved{Outcome: outcome, By: messages.ByTransactionList,
		OrderNumber: was.OrderNumber, Evidence: found.Records, Fingerprint: was.Fingerprint})
	if err != nil {
		if errors.Is(err, history.ErrFenced) { // another program was first
			err = nil
		}
		return true, err
	}
	r.Logger.Info().Str("op", string(messages.Enroll)).Str("request_id", o.ID).Str("outcome", string(outcome)).
		Dur("after", age).Msg("resolved")
	r.Resolved(outcome)
	return true, nil
}

// became is what the list says of an uncertain enrollment at an age; "" if it says nothing yet.
//
// Succeeded means, as for a call, that the service accepted the enrollment. Failed means that there is no mandate and
// will be none: it is not listed after a day, or every record of it has ended without approval. An enrollment whose
// link was lost is known to have been accepted; there the question is what came of it.
func became(found mandates.Listing, was messages.EnrollUncertain, age time.Duration) messages.State {
	taken := was.Reason == messages.ReasonLinkLost || len(was.Evidence) > 0
	if len(found.Records) == 0 {
		if found.Proof() != mandates.NotListed || taken { // what was listed once is not undone
			return ""
		}
		return messages.Failed
	}
	ended, approved := true, false
	for _, record := range found.Records {
		r := mandates.ReadRecord(record)
		state := r.Decided()
		if r.Deduction() { // even one that failed has a mandate
			state = messages.Succeeded
		}
		approved = approved || state == messages.Succeeded
		ended = ended && state == messages.Failed
	}
	switch {
	case ended && found.Cut:
		return ""
	case ended:
		return messages.Failed
	case approved || !taken || age >= retry.ResolveEnough:
		return messages.Succeeded
	}
	return ""
}
