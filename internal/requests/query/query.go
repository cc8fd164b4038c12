// Package query answers the two reads: a mandate account's transactions, page by page, and the mail account's information.
// A read may be repeated at will, so it announces nothing; its history only keeps two workers from publishing it twice.
//
//	transactions ─► page, page, … each stored over the one before ─► listed
//	account      ─────────────────────────────────────────────────► reported
package query

import (
	"context"
	"errors"
	"fmt"
	"time"

	"errand/internal/history"
	"errand/internal/requests/admission"
	"errand/internal/requests/attempt"
	"errand/internal/requests/hold"
	"errand/internal/retry"
	"errand/pkg/clients"
	"errand/pkg/clients/mail"
	"errand/pkg/clients/mandate"
	"errand/pkg/messages"
)

// Account reads the mail account's information.
type Account struct {
	Upstream *mail.Client
	Caller   *attempt.Caller
}

// Handle answers one account request.
func (q *Account) Handle(ctx context.Context, r attempt.Request[messages.AccountRequest]) (messages.Event, error) {
	r.History.Attempt++
	account, err := read(ctx, q.Caller, r, q.Upstream.Account)
	if err != nil {
		return unanswered(q.Caller, r, err)
	}
	return r.History.Event(messages.Reported, &messages.AccountReported{Account: account, Fingerprint: r.History.Fingerprint}), nil
}

// read makes one call that changes nothing, with its slot and against its hold, again while the delivery has tries left; once
// after give_up_at.
func read[R, T any](ctx context.Context, c *attempt.Caller, r attempt.Request[R], f func(context.Context) (T, error)) (T, error) {
	policy := c.Policy
	if !time.Now().Before(r.GiveUpAt) {
		policy.Tries = 1
	}
	value, err := retry.Read(ctx, c.Stop, policy, func(ctx context.Context) (value T, err error) {
		if err := c.Slots.Take(ctx); err != nil {
			return value, err
		}
		defer c.Slots.Free()
		if err := r.Permit.Call(); err != nil {
			return value, r.Failed(clients.Held, messages.ReasonHeld, err.Error(), err)
		}
		value, err = f(ctx)
		r.Permit.Observe(hold.Call{Err: err})
		return value, err
	})
	if fate := clients.FateOf(err); fate == clients.Busy && !c.Stopping() && ctx.Err() == nil {
		r.Permit.Observe(hold.Call{Err: err, Exhausted: true})
	}
	return value, err
}

// unanswered ends a read that was refused or whose answer cannot be read; any other comes back until it is given up.
func unanswered[R any](c *attempt.Caller, r attempt.Request[R], err error) (messages.Event, error) {
	failed, ok := errors.AsType[*clients.Error](err)
	if !ok {
		return messages.Event{}, err
	}
	if failed.Fate == clients.Refused || failed.Reason == messages.ReasonBadAnswer {
		return r.History.Event(messages.Failed, &messages.FailedBody{Reason: failed.Reason, Message: failed.Message,
			HTTPStatus: failed.Status, Fields: failed.Fields, Fingerprint: r.History.Fingerprint}), nil
	}
	wait := c.Policy.Defer(time.Since(r.Published) / 4) // half as long again each time
	if failed.Fate == clients.Held {
		wait = c.Policy.Max // it stays in its queue while the hold lasts
	}
	return later(c, r, failed, max(wait, retry.Asked(err)))
}

// later has a read come back after a wait, until it is given up.
func later[R any](c *attempt.Caller, r attempt.Request[R], why *clients.Error, wait time.Duration) (messages.Event, error) {
	if time.Now().Before(r.GiveUpAt) {
		return messages.Event{}, &history.RetryLaterError{At: retry.NotBefore(wait, r.GiveUpAt, c.Timeout), Cause: why}
	}
	return r.History.Event(messages.Failed, &messages.FailedBody{Reason: messages.ReasonUnavailable, HTTPStatus: why.Status,
		Message: fmt.Sprintf("given up after %s", messages.Time{Time: r.GiveUpAt}), Fields: why.Fields, Fingerprint: r.History.Fingerprint}), nil
}

// Ended is the outcome of a read that is not run: it changes nothing upstream, and never ends uncertain.
func Ended[R any](_ R, why messages.FailedBody, _ history.Effect) (messages.State, messages.Body) {
	return messages.Failed, &why
}

// Why a listing waits that could go on.
var (
	errStopping = errors.New("query: the program ends between two pages")
	errCrowded  = &clients.Error{Operation: string(messages.Transactions), Fate: clients.Busy, Reason: messages.ReasonBusy,
		Message: "other long listings are read first"}
)

// Transactions lists mandate transactions.
type Transactions struct {
	Upstream     *mandate.Client
	Caller       *attempt.Caller
	WithoutPayer bool // events hold nothing of the payers

	long admission.Share // calls of listings beyond their first page
}

// Handle answers one listing request. One that was interrupted or deferred, or made room for others, continues with the page
// after the last one published. Each page says until when its worker continues: of two workers that list the same id, one waits.
func (q *Transactions) Handle(ctx context.Context, r attempt.Request[messages.TransactionsRequest]) (messages.Event, error) {
	h := r.History
	last := messages.TransactionsPage{More: true} // none was published
	if r.Prior.State == messages.Page {
		if err := messages.DecodeEvent(r.Prior.Last, &last); err != nil {
			return messages.Event{}, err
		}
		if last.Deadline.IsZero() { // published by a program that did not say whether there is more
			last = messages.TransactionsPage{More: true}
		}
	}
	h.Attempt++
	filter := mandate.Filter{OrderNumber: r.Body.OrderNumber, Status: r.Body.Status,
		ExchangeReferenceNumber: r.Body.ExchangeReferenceNumber, PayerEmail: r.Body.PayerEmail}
	more := func() bool { return last.More && (r.Body.MaxPages == 0 || last.Page < r.Body.MaxPages) }
	share := share{Transactions: q}
	defer share.free()
	var waits error
	if last.Page > 0 && more() {
		waits = share.next()
	}
	for before := last.Records; waits == nil && more(); {
		page, err := read(ctx, q.Caller, r, func(ctx context.Context) (mandate.Page, error) {
			return q.Upstream.TransactionsPage(ctx, filter, last.Page+1, before)
		})
		if err != nil {
			if failed, ok := errors.AsType[*clients.Error](err); ok && q.WithoutPayer {
				err = failed.Without(filter.PayerEmail)
			}
			return unanswered(q.Caller, r, err)
		}
		before = page.Records
		last = messages.TransactionsPage{Page: page.Number, Records: page.Records, Total: last.Total + len(page.Records), More: page.More,
			Fingerprint: h.Fingerprint, Deadline: messages.Time{Time: time.Now()}}
		if q.WithoutPayer {
			last.Records = history.WithoutPayers(page.Records)
		}
		if more() {
			if waits = share.next(); waits == nil {
				last.Deadline = q.Caller.Deadline().Time()
			}
		}
		if err := h.Store(ctx, messages.Page, &last); err != nil {
			return messages.Event{}, err
		}
	}
	switch {
	case errors.Is(waits, errCrowded): // the fewer pages it has had, the sooner it is back
		return later(q.Caller, r, errCrowded, min(q.Caller.Policy.Max, time.Duration(last.Page)*q.Caller.Policy.Max/10))
	case waits != nil:
		return messages.Event{}, waits
	}
	return h.Event(messages.Listed, &messages.TransactionsListed{Pages: last.Page, Total: last.Total, Fingerprint: h.Fingerprint}), nil
}

// share is one listing's share of the calls of long ones.
type share struct {
	*Transactions
	taken   bool
	refused int // how many others had been, then
}

// enough is how many others are refused before a listing frees its share. Each of them is back some seconds later: while few
// are, the share would be idle until then.
const enough = 10

// next returns why the next page has to wait, if it does.
func (s *share) next() error {
	switch {
	case s.Caller.Stopping():
		return &history.RetryLaterError{At: time.Now(), Cause: errStopping}
	case s.taken && s.long.Refused()-s.refused >= enough, !s.taken && !s.long.Try(1, s.Caller.Slots.Whole()/2):
		return errCrowded
	case !s.taken:
		s.taken, s.refused = true, s.long.Refused()
	}
	return nil
}

func (s *share) free() {
	if s.taken {
		s.long.Free(1)
	}
}
