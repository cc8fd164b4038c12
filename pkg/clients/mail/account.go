package mail

import (
	"context"
	"encoding/json"
	"net/http"

	"errand/pkg/clients"
)

// Account reads the information about the account that owns the key: a JSON object, as the service wrote it.
func (c *Client) Account(ctx context.Context) (account json.RawMessage, err error) {
	call := clients.Request{Operation: "account", Method: http.MethodGet, Path: "/api/v0/user"}
	err = c.upstream.Exchange(ctx, call, func(status int, body []byte) clients.Reading {
		return open(status, body, func(data json.RawMessage) (ok bool) {
			account, ok = object(data)
			return ok
		})
	})
	if err != nil {
		return nil, err
	}
	return account, nil
}
