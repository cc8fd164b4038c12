// Package query answers the two reads: a mandate account's transactions, page by
// page, and the mail account's information. A read may be repeated at will, so it
// announces nothing; its history only keeps two workers from telling it twice.
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
	"errand/internal/retry"
	"errand/pkg/clients"
	"errand/pkg/clients/mandate"
	"errand/pkg/messages"
)

// Transactions lists mandate transactions.
type Transactions struct {
	Upstream *mandate.Client
	Policy   retry.Policy
}

// Handle answers one listing request. An interrupted listing begins again.
func (q *Transactions) Handle(ctx context.Context, r history.Request[messages.TransactionsRequest]) (messages.Event, error) {
	f := mandate.Filter{OrderNumber: r.Body.OrderNumber, Status: r.Body.Status,
		ExchangeReferenceNumber: r.Body.ExchangeReferenceNumber, PayerEmail: r.Body.PayerEmail}
	r.History.Attempt++
	pages, total := 0, 0
	var stored error
	// A failed page is asked for again; the ones before it stand.
	_, err := retry.Read(ctx, q.Policy, func(ctx context.Context) (struct{}, error) {
		for page, err := range q.Upstream.Transactions(ctx, f, pages+1) {
			if err != nil {
				return struct{}{}, err
			}
			pages, total = pages+1, total+len(page.Records)
			stored = r.History.Store(ctx, messages.Page, &messages.TransactionsPage{Page: page.Number, Records: page.Records})
			if stored != nil || pages == r.Body.MaxPages {
				break
			}
		}
		return struct{}{}, nil
	})
	if stored != nil {
		return messages.Event{}, stored
	}
	if err != nil {
		return unanswered(q.Policy, r, err)
	}
	return r.History.Event(messages.Listed, &messages.TransactionsListed{Pages: pages, Total: total, Fingerprint: r.History.Fingerprint}), nil
}

// unanswered is what becomes of a read that got no answer: failed when the
// upstream said no or talks nonsense, else put off until it is given up.
func unanswered[R any](p retry.Policy, r history.Request[R], err error) (messages.Event, error) {
	var failed *clients.Error
	if !errors.As(err, &failed) {
		return messages.Event{}, err
	}
	body := &messages.FailedBody{Reason: messages.Reason(failed.Reason), Message: failed.Message, HTTPStatus: failed.Status,
		Fields: failed.Fields, Fingerprint: r.History.Fingerprint}
	final := failed.Fate == clients.Refused || failed.Reason == string(messages.ReasonBadAnswer)
	if now := time.Now(); !final && now.Before(r.GiveUpAt) {
		wait := min(now.Sub(r.Published)/2, 15*time.Minute) // half as long again each time
		at := now.Add(max(wait, p.Max, failed.RetryAfter))
		if at.After(r.GiveUpAt) {
			at = r.GiveUpAt
		}
		return messages.Event{}, &history.Later{At: at, Cause: failed}
	}
	if !final {
		body.Reason, body.Message = messages.ReasonUnavailable, fmt.Sprintf("given up after %s", messages.Time{Time: r.GiveUpAt})
	}
	return r.History.Event(messages.Failed, body), nil
}
