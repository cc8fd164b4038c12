package mandate

import (
	"bytes"
	"encoding/json"
	"strings"

	"errand/pkg/clients/internal/scan"
)

// readEnrolled wants a url. An answer with another order number belongs to another request: behind its url is another payer.
func readEnrolled(body []byte) (url, order string, ok bool) {
	if !json.Valid(body) {
		return "", "", false
	}
	if url, order, ok = scanEnrolled(body); !ok {
		var answer struct {
			OrderNumber any    `json:"order_number"` // of an unexpected type it names none
			URL         string `json:"url"`
		}
		if json.Unmarshal(body, &answer) != nil {
			return "", "", false
		}
		url = answer.URL
		order, _ = answer.OrderNumber.(string)
	}
	return url, strings.TrimSpace(order), strings.TrimSpace(url) != "" && len(url) <= longestURL
}

// longestURL is far more than any browser opens, and little enough for an event.
const longestURL = 8 << 10

// scanEnrolled reads a valid answer as encoding/json does, quicker; false means that the answer is not simple.
func scanEnrolled(body []byte) (url, order string, ok bool) {
	texts := true
	ok = scan.Object(bytes.TrimSpace(body), func(key, value []byte) bool {
		into := &url
		switch string(key) {
		case "url":
		case "order_number":
			into = &order
		default:
			return false
		}
		texts = texts && value[0] == '"'
		scan.Text(into, value)
		return true
	})
	return url, order, ok && texts
}
