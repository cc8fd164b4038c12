package transactions

import (
	"context"
	"fmt"
	"hash/maphash"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"errand/internal/history"
	"errand/internal/lists/sweep"
	"errand/internal/mandates"
	"errand/internal/retry"
	"errand/pkg/clients/mandate"
	"errand/pkg/messages"
)

// LookUps looks up single order numbers, beside the readings of the whole list: of open enrollments at growing ages,
// and at once of enrollments that a callback names. The sweeper publishes what it finds like every record of the list.
//
// An enrollment is open while its last application is not decided, until its link has expired and a day more.
type LookUps struct {
	List     *List
	Upstream *mandate.Client
	Policy   retry.Policy
	Idle     time.Duration // see mandates.FollowUp
	// Open returns the first event in a state: see mandates.FollowUp.
	Open func(ctx context.Context, op messages.Operation, state messages.State, from uint64, since time.Time) (history.Entry, error)
	// Publish has records published: the sweeper's Publish. After an error they are looked up again.
	Publish func(ctx context.Context, rows []sweep.Row[Record]) error
	// Leads waits until this poller leads: the sweeper's Leads. The error is ctx's.
	Leads func(ctx context.Context) error
	// ReadLately reports whether the list was read lately as far back as a time, by its own dates.
	ReadLately func(at time.Time) bool
	// LookedUp is called for each look with what caused it and how late it was.
	LookedUp func(by messages.TransactionBy, late time.Duration)
	Logger   zerolog.Logger

	looked map[uint64]time.Time // when requests were looked up that callbacks named
}

// Run works until ctx ends. What is open is read from the events.
func (l *LookUps) Run(ctx context.Context) {
	if l.Leads(ctx) != nil {
		return
	}
	l.looked = map[uint64]time.Time{}
	open := l.looks("an open enrollment", messages.ByLookUp, messages.Enroll, messages.Succeeded, l.open)
	open.Ages = retry.OpenAges
	called := l.looks("an enrollment that a callback names", messages.ByCallback, messages.Callback, messages.Received, l.called)
	called.Ages, called.Back = retry.CallbackAges, retry.CallbackBack
	var both sync.WaitGroup
	both.Go(func() { open.Run(ctx) })
	both.Go(func() { called.Run(ctx) })
	both.Wait()
}

func (l *LookUps) looks(what string, by messages.TransactionBy, op messages.Operation, state messages.State,
	look func(ctx context.Context, o history.Entry, before, age time.Duration) (bool, error)) *mandates.FollowUp {
	return &mandates.FollowUp{What: what, Policy: l.Policy, Idle: l.Idle, Logger: l.Logger,
		Next: func(ctx context.Context, from uint64, since time.Time) (history.Entry, error) {
			return l.Open(ctx, op, state, from, since)
		},
		Look: look, Late: func(late time.Duration) { l.LookedUp(by, late) }}
}

// open looks an enrollment up whose link was published, unless it is decided or its link has expired long ago.
func (l *LookUps) open(ctx context.Context, o history.Entry, before, _ time.Duration) (looked bool, err error) {
	var succeeded messages.EnrollSucceeded
	if err := messages.DecodeEvent(o.Body, &succeeded); err != nil || succeeded.OrderNumber == "" {
		return false, nil // it cannot be looked up
	}
	expires := o.At.Add(linkLasts)
	if at, err := time.ParseInLocation(time.DateTime, succeeded.LinkExpiredAt, l.List.Times.Zone); err == nil {
		expires = at
	}
	if o.At.Add(before).After(expires.Add(retry.OpenEnough)) {
		return false, nil
	}
	decided, at, err := l.application(ctx, o.ID())
	if err != nil || decided || !at.IsZero() && l.ReadLately(at) {
		return false, err
	}
	return l.look(ctx, succeeded.OrderNumber, messages.ByLookUp)
}

// application reads whether a request's last published application is decided, and when it was made; zero if unknown.
func (l *LookUps) application(ctx context.Context, id string) (decided bool, at time.Time, err error) {
	b, err := l.List.lastApplication(ctx, id)
	r := mandates.ReadRecord(b.Transaction)
	return r.Decided() != "", timeOf(r.CreatedAt, l.List.Times), err
}

// called looks an enrollment up that a callback names, at most once every retry.CallbackEvery: anyone who has the address
// can send as many as the receiver takes. One that came right after a look has another one when that is due; so has one
// that nothing was decided by: the service may call before it lists.
func (l *LookUps) called(ctx context.Context, o history.Entry, before, age time.Duration) (looked bool, err error) {
	key, now := maphash.String(seed, o.ID()), time.Now()
	if last := l.looked[key]; last.After(o.At.Add(before)) || now.Sub(last) < retry.CallbackEvery {
		return false, nil
	}
	if age > retry.CallbackEvery {
		if decided, _, err := l.application(ctx, o.ID()); err != nil || decided {
			return false, err
		}
	}
	started, err := l.List.Last(ctx, messages.Enroll, messages.Enroll.Subject(messages.Started, o.ID()))
	if err != nil || started.Sequence == 0 {
		return false, err // its events are gone: the list shows what is new of it
	}
	var b messages.EnrollStarted
	if err := messages.DecodeEvent(started.Body, &b); err != nil || b.OrderNumber == "" {
		return false, nil
	}
	looked, err = l.look(ctx, b.OrderNumber, messages.ByCallback)
	if mandates.Again(err) {
		return looked, err
	}
	if len(l.looked) >= maxRemembered {
		clear(l.looked)
	}
	l.looked[key] = now
	return looked, err
}

const (
	linkLasts     = time.Hour // a link that was asked for without a time
	lookPages     = 4         // that are read of one order number: it has few records
	maxRemembered = 10_000    // requests that were looked up for a callback, or whose first application is known
)

func (l *LookUps) look(ctx context.Context, order string, by messages.TransactionBy) (looked bool, err error) {
	if err := l.Leads(ctx); err != nil {
		return false, err
	}
	asked := time.Now()
	found, err := mandates.Read(ctx, nil, l.Upstream, l.Policy, mandate.Filter{OrderNumber: order, Limit: MaxPage}, lookPages)
	if err != nil {
		return true, err
	}
	if found.Proof() == mandates.Nothing {
		return true, fmt.Errorf("transactions: only readings of the whole list show what is decided: %s", found.Flaw)
	}
	if err := l.Publish(ctx, l.List.rows(found.Records, asked, by)); err != nil {
		return true, fmt.Errorf("transactions: publish what was looked up: %w: %w", mandates.ErrAgain, err)
	}
	return true, nil
}
