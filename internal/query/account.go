package query

import (
	"context"

	"errand/internal/history"
	"errand/internal/retry"
	"errand/pkg/clients/mail"
	"errand/pkg/messages"
)

// Account reads the mail account's information.
type Account struct {
	Upstream *mail.Client
	Policy   retry.Policy
}

// Handle answers one account request.
func (q *Account) Handle(ctx context.Context, r history.Request[messages.AccountRequest]) (messages.Event, error) {
	r.History.Attempt++
	account, err := retry.Read(ctx, q.Policy, q.Upstream.Account)
	if err != nil {
		return unanswered(q.Policy, r, err)
	}
	return r.History.Event(messages.Reported, &messages.AccountReported{Account: account.Raw, Fingerprint: r.History.Fingerprint}), nil
}
