package enroll

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"errand/internal/history"
	"errand/internal/retry"
	"errand/pkg/clients"
	"errand/pkg/clients/mandate"
	"errand/pkg/messages"
)

// Resolver looks enrollments that ended uncertain up again, and publishes what became of
// them when the transaction list shows it.
//
//	uncertain ─► look at each age ─┬─ listed, or its state is final ─► resolved
//	                               ├─ not listed, a day old ─────────► resolved: failed
//	                               └─ else ──────────────────────────► the next age
//
// Of those that are open it remembers nothing but a place in the stream for each age:
// none is dropped however many they are, and a new program finds them all again. Several
// programs may look at once; the history takes one answer.
type Resolver struct {
	Upstream *mandate.Client
	Policy   retry.Policy
	Zone     *time.Location // of the document's dates
	// Held reports whether the service is not to be asked now.
	Held func() bool
	Log  history.Log
	// Next gives the first enrollment that ended uncertain at or behind a sequence or,
	// where that is 0, a time; a zero one when there is none. The error is the context's.
	Next     func(ctx context.Context, from uint64, since time.Time) (history.Open, error)
	Resolved func(outcome messages.State)
	Logger   zerolog.Logger

	WithoutPayer bool // events hold nothing of the payer
}

// queue holds the looks at one age. The stream is in the order in which they are due.
type queue struct {
	age, next time.Duration // next is the age of the look after it; 0: there is none
	from      uint64        // sequence behind the last one taken
	since     time.Time     // where it begins
	open      history.Open  // the one to look at; zero: to be asked for
	due       time.Time     // when to look, or to ask
}

// Run works until ctx ends. What is open then is looked at again by the next program.
func (r *Resolver) Run(ctx context.Context) error {
	began := time.Now()
	queues := make([]*queue, len(retry.ResolveAges))
	for i, age := range retry.ResolveAges {
		queues[i] = &queue{age: age, since: time.Unix(0, 0), due: began}
		if i+1 < len(retry.ResolveAges) { // what is older was looked at, or is at the next age
			queues[i].next, queues[i].since = retry.ResolveAges[i+1], began.Add(-retry.ResolveAges[i+1])
		}
	}
	said, wait := "", time.Duration(0)
	for {
		q := slices.MinFunc(queues, func(a, b *queue) int { return a.due.Compare(b.due) })
		if !retry.Pause(ctx, max(wait, time.Until(q.due))) {
			return nil
		}
		var err error
		wait, err = r.step(ctx, q)
		if ctx.Err() != nil {
			return nil
		}
		now := ""
		if err != nil {
			now = err.Error()
		}
		if now != "" && now != said {
			r.Logger.Warn().Err(err).Msg("an uncertain enrollment could not be looked up")
		}
		if wait > 0 { // a step without a look says nothing of the service
			said = now
		}
	}
}

// step asks for the next one of a queue or looks at it, and says how long to leave the
// service alone then.
func (r *Resolver) step(ctx context.Context, q *queue) (time.Duration, error) {
	now := time.Now()
	switch {
	case q.open.ID == "":
		open, err := r.Next(ctx, q.from, q.since)
		if err != nil {
			return 0, err
		}
		if open.ID == "" {
			q.due = now.Add(q.age) // what comes now is not due before
			return 0, nil
		}
		q.open, q.from, q.due = open, open.Sequence+1, open.At.Add(q.age)
		return 0, nil
	case q.next > 0 && now.Sub(q.open.At) >= q.next: // late; the next age is due as well
		q.open = history.Open{}
		return 0, nil
	case r.Held():
		return max(r.Policy.Max, retry.ResolvePace), nil
	}
	looked, err := r.look(ctx, q.open, q.age)
	failed, ok := errors.AsType[*clients.Error](err)
	if ok && (failed.Fate == clients.Busy || failed.Fate == clients.Held) { // nobody can be looked up
		return max(r.Policy.Max, retry.ResolvePace, min(failed.RetryAfter, retry.RetryAfterMax)), err
	}
	q.open = history.Open{} // an unknown fate or a refusal may be this one's own: it waits for its next age
	switch {
	case ok:
		return max(r.Policy.Max, retry.ResolvePace), err
	case looked:
		return retry.ResolvePace, err
	}
	return 0, err
}

// look looks one enrollment up, if it is uncertain still, and stores what became of it,
// if the list shows it. looked: the service was asked.
func (r *Resolver) look(ctx context.Context, o history.Open, age time.Duration) (looked bool, err error) {
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
	found, err := list(ctx, nil, r.Upstream, r.Policy, mandate.Filter{OrderNumber: was.OrderNumber}, maxPages)
	if err != nil {
		return true, err
	}
	found = found.since(o.Began.Add(-retry.Margin), r.Zone)
	if age >= retry.ResolveEnough && len(found.records) == 0 {
		if found.hidden, err = r.hidden(ctx); err != nil {
			return true, err
		}
	}
	outcome := became(found, was, age)
	if outcome == "" {
		return true, nil
	}
	if r.WithoutPayer {
		found.records = messages.WithoutPayers(found.records)
	}
	err = h.Store(ctx, messages.Resolved, &messages.EnrollResolved{Outcome: outcome, By: messages.ByTransactionList,
		OrderNumber: was.OrderNumber, Evidence: found.records, Fingerprint: was.Fingerprint})
	if err != nil {
		if errors.Is(err, history.ErrFenced) { // another program was first
			err = nil
		}
		return true, err
	}
	r.Logger.Info().Str("op", string(messages.Enroll)).Str("request_id", o.ID).Str("outcome", string(outcome)).Dur("after", age).Msg("resolved")
	r.Resolved(outcome)
	return true, nil
}

// hidden reports whether the list shows nothing at all: it may be hidden from our token.
func (r *Resolver) hidden(ctx context.Context) (bool, error) {
	return retry.Read(ctx, nil, r.Policy, func(ctx context.Context) (bool, error) {
		for page, err := range r.Upstream.Transactions(ctx, mandate.Filter{}, 1) {
			return len(page.Records) == 0, err
		}
		return true, nil
	})
}

// became is what the list says of an uncertain enrollment at an age; "": nothing yet.
//
// Succeeded means what it means of a call: the service took the enrollment. Failed: there
// is no mandate and none will come of it, as it is not listed after a day, or every record
// of it has ended otherwise than approved. Of one whose link was lost it is known that it
// was taken; there the question is what came of it.
func became(found listing, was messages.EnrollUncertain, age time.Duration) messages.State {
	taken := was.Reason == messages.ReasonLinkLost || len(was.Evidence) > 0
	if len(found.records) == 0 {
		if found.others || found.cut || found.hidden || taken || age < retry.ResolveEnough { // what was listed once was not unmade
			return ""
		}
		return messages.Failed
	}
	ended, approved := true, false
	for _, record := range found.records {
		state := stateOf(record)
		approved = approved || state == messages.Succeeded
		ended = ended && state == messages.Failed
	}
	switch {
	case ended && found.cut:
		return ""
	case ended:
		return messages.Failed
	case approved || !taken || age >= retry.ResolveEnough:
		return messages.Succeeded
	}
	return ""
}

// since leaves out the records that were created before a time: they are of an earlier
// enrollment with the same order number. Whether one of unknown age is ours is not known, so
// that nothing else is concluded from the list's silence.
func (l listing) since(began time.Time, zone *time.Location) listing {
	records := l.records
	l.records = nil
	for _, record := range records {
		var r struct {
			CreatedAt string `json:"created_at"`
		}
		_ = json.Unmarshal(record, &r) // unreadable: of unknown age
		at, err := time.ParseInLocation(time.DateTime, r.CreatedAt, zone)
		if err == nil && at.Before(began) {
			l.others = true
			continue
		}
		l.records = append(l.records, record)
	}
	return l
}

// stateOf reads a transaction record: succeeded, failed, or "" while it may become either.
// The codes but 3 are not shown by the upstream; assumed, see docs/adr/0004-sandbox-assumptions.md.
// One that is not known is neither, so that it is never taken for the end of a mandate.
func stateOf(record json.RawMessage) messages.State {
	var r struct {
		Type   string      `json:"transaction_type"`
		Status json.Number `json:"status"`
	}
	_ = json.Unmarshal(record, &r) // what cannot be read is neither
	switch {
	case r.Type == "Deduction", r.Status == "3": // a deduction, even a failed one, has a mandate
		return messages.Succeeded
	case r.Status == "2", r.Status == "4", r.Status == "5": // failed, cancelled, expired
		return messages.Failed
	}
	return ""
}
