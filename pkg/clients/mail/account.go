package mail

import (
	"context"
	"encoding/json"
	"net/http"

	"errand/pkg/clients"
)

// Account is the account that owns the key.
type Account struct {
	Raw           json.RawMessage // all of it
	Organisation  string
	Email         string
	Suspended     bool // the upstream refuses submissions
	SMTPUsername  string
	LimitQuota    int
	TotalUsage    int
	CreditBalance int
}

// Account reads the account information. What is missing or of an unexpected type is left empty; Raw holds it all.
func (c *Client) Account(ctx context.Context) (account Account, err error) {
	call := clients.Request{Operation: "account", Method: http.MethodGet, Path: "/api/v0/user"}
	err = c.upstream.Exchange(ctx, call, func(status int, body []byte) clients.Reading {
		return open(status, body, func(data json.RawMessage) (ok bool) {
			account, ok = readAccount(data)
			return ok
		})
	})
	if err != nil {
		return Account{}, err
	}
	return account, nil
}

func readAccount(data json.RawMessage) (Account, bool) {
	raw, ok := object(data)
	if !ok {
		return Account{}, false
	}
	var user struct {
		Organisation  string `json:"organisation"`
		Email         string `json:"email"`
		Suspended     flag   `json:"suspended"`
		SMTPUsername  string `json:"smtp_username"`
		LimitQuota    number `json:"limit_quota"`
		TotalUsage    number `json:"total_usage"`
		CreditBalance number `json:"credit_balance"`
	}
	_ = json.Unmarshal(raw, &user) // fields of an unexpected type stay empty and do not hide the others
	return Account{
		Raw: raw, Organisation: user.Organisation, Email: user.Email, Suspended: user.Suspended.yes, SMTPUsername: user.SMTPUsername,
		LimitQuota: int(user.LimitQuota), TotalUsage: int(user.TotalUsage), CreditBalance: int(user.CreditBalance),
	}, true
}
