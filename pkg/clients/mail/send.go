package mail

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"

	"errand/pkg/clients"
)

// MaxRecipients is the document's limit for one submission.
const MaxRecipients = 1000

type sent struct {
	TotalRecipient json.Number `json:"total_recipient"`
}

// Send submits the message to 1 to 1000 recipients and returns the number of recipients accepted as the upstream says, which may differ
// from the number sent. Any other number of recipients is refused without a call. A 2xx without total_recipient is of unknown fate.
func (c *Client) Send(ctx context.Context, m Encoded, to []string) (accepted int, err error) {
	if len(to) == 0 || len(to) > MaxRecipients {
		return 0, clients.Refusal(submission, "to", "must hold 1 to 1000 recipients")
	}
	if len(m.static) == 0 {
		return 0, clients.Refusal(submission, "body", "the message was not encoded")
	}
	call := clients.Request{
		Operation: submission, Method: http.MethodPost, Path: "/api/v0/messages", Body: m.body(to, c.headersAsList),
	}
	err = c.upstream.Exchange(ctx, call, func(status int, body []byte) clients.Reading {
		return readSent(status, body, &accepted)
	})
	if err != nil {
		return 0, err
	}
	return accepted, nil
}

func readSent(status int, body []byte, accepted *int) clients.Reading {
	return open(status, body, func(data sent) bool {
		n, err := strconv.Atoi(string(data.TotalRecipient))
		*accepted = n
		return err == nil && n >= 0
	})
}
