package query

import (
	"context"

	"errand/internal/requests/attempt"
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
