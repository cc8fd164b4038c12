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
	"errand/internal/requests/attempt"
	"errand/internal/requests/hold"
	"errand/internal/retry"
	"errand/pkg/clients"
	"errand/pkg/clients/mail"
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
	return r.History.Event(messages.Reported, &messages.AccountReported{Account: account.Raw, Fingerprint: r.History.Fingerprint}), nil
}

// read makes one call that changes nothing, with its slot and against its hold, again while the delivery has tries left.
func read[R, T any](ctx context.Context, c *attempt.Caller, r attempt.Request[R], f func(context.Context) (T, error)) (value T, err error) {
	for waits := c.Policy.Waits(); ; {
		if value, err = once(ctx, c, r, f); err == nil || !repeatable(err) {
			return value, err
		}
		wait, again := waits.Next(err)
		r.Permit.Observe(hold.Call{Err: err, Exhausted: !again})
		if !again || !c.Pause(ctx, wait) || c.Stopping() || !time.Now().Before(r.GiveUpAt) {
			return value, err
		}
	}
}

func once[R, T any](ctx context.Context, c *attempt.Caller, r attempt.Request[R], f func(context.Context) (T, error)) (value T, err error) {
	if err := c.Slots.Take(ctx); err != nil {
		return value, err
	}
	defer c.Slots.Free()
	if err := r.Permit.Call(); err != nil {
		return value, r.Failed(clients.Held, clients.ReasonHeld, err.Error(), err)
	}
	if value, err = f(ctx); err == nil || !repeatable(err) {
		r.Permit.Observe(hold.Call{Err: err})
	}
	return value, err
}

// repeatable reports whether the same may be asked for again at once.
func repeatable(err error) bool {
	fate := clients.FateOf(err)
	return fate == clients.Busy || fate == clients.Unknown
}

// unanswered ends a read that was refused or whose answer cannot be read; any other comes back until it is given up.
func unanswered[R any](c *attempt.Caller, r attempt.Request[R], err error) (messages.Event, error) {
	failed, ok := errors.AsType[*clients.Error](err)
	if !ok {
		return messages.Event{}, err
	}
	if failed.Fate == clients.Refused || failed.Reason == string(messages.ReasonBadAnswer) {
		return r.History.Event(messages.Failed, &messages.FailedBody{Reason: messages.Reason(failed.Reason), Message: failed.Message,
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
