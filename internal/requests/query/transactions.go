package query

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"errand/internal/history"
	"errand/internal/requests/attempt"
	"errand/pkg/clients"
	"errand/pkg/clients/mandate"
	"errand/pkg/messages"
)

// errStopping is why a listing waits that could go on.
var errStopping = errors.New("query: the program ends between two pages")

// Transactions lists mandate transactions.
type Transactions struct {
	Upstream     *mandate.Client
	Caller       *attempt.Caller
	WithoutPayer bool // events hold nothing of the payers
}

// Handle answers one listing request. A listing that was interrupted or deferred continues with the page after the last
// one published. Each page says until when its worker continues: of two workers that list the same id, one waits.
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
	var before []json.RawMessage // records of the page before, if this delivery read it
	for last.More && (r.Body.MaxPages == 0 || last.Page < r.Body.MaxPages) {
		if before != nil && q.Caller.Stopping() {
			return messages.Event{}, &history.RetryLaterError{At: time.Now(), Cause: errStopping}
		}
		page, err := read(ctx, q.Caller, r, func(ctx context.Context) (mandate.Page, error) {
			return q.Upstream.TransactionsPage(ctx, filter, last.Page+1, before)
		})
		if err != nil {
			return unanswered(q.Caller, r, q.shown(err, filter))
		}
		before = page.Records
		records := page.Records
		if q.WithoutPayer {
			records = messages.WithoutPayers(records)
		}
		last = messages.TransactionsPage{Page: page.Number, Records: records, Total: last.Total + len(page.Records), More: page.More,
			Fingerprint: h.Fingerprint, Deadline: q.Caller.Deadline()}
		if err := h.Store(ctx, messages.Page, &last); err != nil {
			return messages.Event{}, err
		}
	}
	return h.Event(messages.Listed, &messages.TransactionsListed{Pages: last.Page, Total: last.Total, Fingerprint: h.Fingerprint}), nil
}

// shown is what an event may say about a listing that failed.
func (q *Transactions) shown(err error, filter mandate.Filter) error {
	if failed, ok := errors.AsType[*clients.Error](err); ok && q.WithoutPayer {
		return failed.Without(filter.PayerEmail)
	}
	return err
}
