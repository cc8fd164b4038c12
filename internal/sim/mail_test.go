package sim

import (
	"encoding/json"
	"fmt"
	"net/http"
)

// mailService is the model of the email service: it takes messages, and says what the account is.
func mailService(w *world) *service {
	return &service{
		read: func(body []byte) *call {
			var m struct {
				Subject string   `json:"subject"`
				To      []string `json:"to"`
			}
			if err := json.Unmarshal(body, &m); err != nil || len(m.To) == 0 {
				w.fail("the email service got a call that it cannot read: %s", body)
				return &call{}
			}
			c := &call{to: m.To, first: m.To[0]}
			_, _ = fmt.Sscanf(m.Subject, "%s %d", &c.request, &c.contents)
			return c
		},
		take: func(c *call, whole bool) string {
			n := len(c.to)
			if !whole {
				n = (n + 1) / 2
			}
			c.effects = append(c.effects, c.to[:n]...)
			return fmt.Sprintf(`{"error":false,"status_code":200,"data":{"total_recipient":%d}}`, n)
		},
		get: func(string, string) (int, string) {
			return http.StatusOK, `{"error":false,"status_code":200,"data":{"organisation":"o","email":"o@example.test","suspended":false}}`
		}}
}
