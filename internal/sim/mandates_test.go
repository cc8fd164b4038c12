package sim

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// listSettle is LIST_SETTLE, of the programs and of the service.
const listSettle = time.Minute

// row is a record of the transaction list.
type row struct {
	order string
	at    time.Time
}

// ledger is the e-mandate service's: our enrollments that it has taken, and others' among which they are listed.
type ledger struct {
	w      *world
	rows   []row
	others time.Duration // between two enrollments of others; 0 means no others
	began  time.Time
	zone   *time.Location // in which it writes times
	size   int            // of a page
}

// mandateService is the model of the e-mandate service.
func mandateService(w *world, l *ledger) *service {
	return &service{
		read: func(body []byte) *call {
			var m struct {
				Order string `json:"order_number"`
				Name  string `json:"payer_name"`
			}
			if err := json.Unmarshal(body, &m); err != nil || m.Order == "" {
				w.fail("the e-mandate service got a call that it cannot read: %s", body)
				return &call{}
			}
			c := &call{first: m.Order}
			_, _ = fmt.Sscanf(m.Name, "%s %d", &c.request, &c.contents)
			return c
		},
		take: func(c *call, _ bool) string {
			c.effects = append(c.effects, c.first)
			l.rows = append(l.rows, row{c.first, time.Now()})
			return fmt.Sprintf(`{"order_number":%q,"url":"https://pay.example.test/%d"}`, c.first, c.n)
		},
		get: func(_, query string) (int, string) {
			values, _ := url.ParseQuery(query)
			page, _ := strconv.Atoi(values.Get("page"))
			return http.StatusOK, l.list(values.Get("order_number"), max(page, 1))
		}}
}

// maxOthers is how many enrollments of others the list has at most.
const maxOthers = 12

// list is one page of the records, the newest first.
func (l *ledger) list(order string, page int) string {
	now := time.Now()
	if l.w.is(listLate, 0) {
		now = now.Add(-listSettle / 2)
	}
	if l.w.is(listWide, 0) {
		order = ""
	}
	var all []row
	if order == "" && l.others > 0 {
		for at := now.Truncate(l.others); len(all) < maxOthers && !at.Before(l.began); at = at.Add(-l.others) {
			all = append(all, row{"others", at})
		}
	}
	for _, r := range slices.Backward(l.rows) {
		if (order == "" || r.order == order) && !r.at.After(now) {
			at := 0
			for at < len(all) && all[at].at.After(r.at) {
				at++
			}
			all = append(all[:at], append([]row{r}, all[at:]...)...)
		}
	}
	if l.w.is(listHidden, 0) {
		all = nil
	}
	var b strings.Builder
	b.WriteString(`{"data":[`)
	from, to := min((page-1)*l.size, len(all)), min(page*l.size, len(all))
	for i, r := range all[from:to] {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"id":"%d","transaction_type":"Enrollment","created_at":"%s","order_number":"%s","status":0}`,
			r.at.UnixNano(), r.at.In(l.zone).Format(time.DateTime), r.order)
	}
	last := max(1, (len(all)+l.size-1)/l.size)
	next := "null"
	if page < last {
		next = `"?page=2"`
	}
	fmt.Fprintf(&b, `],"links":{"next":%s},"meta":{"current_page":%d,"last_page":%d,"per_page":%d,"total":%d}}`, next, page, last, l.size,
		len(all))
	return b.String()
}
