package mandate

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"

	"errand/internal/wire"
	"errand/pkg/clients"
	"errand/pkg/messages"
)

// Enrollment is the document's enrollment request. A portal_key that is left out is filled in from the configuration, and a
// checksum computed where there is a secret.
type Enrollment = messages.Enrollment

// Enrolled is the answer to an enrollment.
type Enrolled struct {
	Version string          // the interface that was called: v3 or v2
	URL     string          // the payer's enrollment page
	Body    json.RawMessage // the whole answer
}

// Enroll creates an enrollment. It fills in portal_key and checksum if they are left out. The upstream's document does not show
// the status of a success: any 2xx with a url is one. After a 2xx without url, or about another order_number, the fate is unknown;
// the service may spell the same one otherwise. The url may hold a portal key, which its payer sees anyway; one that holds another
// secret counts as missing.
func (c *Client) Enroll(ctx context.Context, e Enrollment) (Enrolled, error) {
	const operation = "enroll"
	config := c.config.Load()
	amount, ok := amountText(string(e.Amount), config.AmountFormat)
	if !ok {
		return Enrolled{}, clients.Refusal(operation, "amount", "must be a plain decimal number with at most two decimals")
	}
	e.Amount = json.Number(amount)
	hide := e.PortalKey
	if e.PortalKey == "" {
		e.PortalKey = config.PortalKey.Reveal()
	}
	if e.Checksum == "" && !config.ChecksumSecret.Empty() {
		e.Checksum = Checksum(config.ChecksumSecret, e)
	}
	body, err := wire.Marshal(e)
	if err != nil {
		return Enrolled{}, clients.Refusal(operation, "body", "cannot be encoded as JSON")
	}
	enrolled := Enrolled{Version: config.Version}
	call := clients.Request{Operation: operation, Method: http.MethodPost, Path: c.path, Body: body, Redact: hide,
		Link: clients.Link{Member: "url", Shows: []string{e.PortalKey, config.PortalKey.Reveal()}}}
	err = c.enroll.Exchange(ctx, call, func(status int, body []byte) clients.Reading {
		enrolled.Body = body
		url, order, ok := readEnrolled(body)
		if ok && status/100 == 2 && !clients.Redacted(url) && (order == "" || wire.SameOrder(order, e.OrderNumber)) {
			enrolled.URL = url
			return clients.Reading{Complete: true}
		}
		return failure(body)
	})
	if err != nil {
		return Enrolled{}, err
	}
	return enrolled, nil
}

func failure(body []byte) clients.Reading {
	message, fields := clients.ParseError(body)
	return clients.Reading{Message: message, Fields: fields}
}

// amountText writes a plain decimal number in the configured form, never changing its value.
func amountText(text, format string) (string, bool) {
	whole, fraction, _ := strings.Cut(text, ".")
	fraction = strings.TrimRight(fraction, "0")
	if !plain(whole) || len(fraction) > 2 || fraction != "" && !plain(fraction) || len(whole) > 1 && whole[0] == '0' {
		return "", false
	}
	if format == fixed2 {
		return whole + "." + (fraction + "00")[:2], true
	}
	if fraction == "" {
		return whole, true
	}
	return whole + "." + fraction, true
}

func plain(text string) bool {
	return text != "" && strings.Trim(text, "0123456789") == ""
}

// readEnrolled wants a url. An answer with another order number belongs to another request: behind its url is another payer.
func readEnrolled(body []byte) (url, order string, ok bool) {
	var answer struct {
		OrderNumber any    `json:"order_number"` // of an unexpected type it names none
		URL         string `json:"url"`
	}
	if json.Unmarshal(body, &answer) != nil {
		return "", "", false
	}
	order, _ = answer.OrderNumber.(string)
	return answer.URL, strings.TrimSpace(order), strings.TrimSpace(answer.URL) != "" && len(answer.URL) <= longestURL
}

// longestURL is far more than any browser opens, and little enough for an event.
const longestURL = 8 << 10
