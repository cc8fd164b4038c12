package e2e

import (
	"fmt"
	"net/http"
	"testing"
	"time"
)

func TestReadsAreAnswered(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		const n = 60
		for i := range n {
			b.publish("mandate.enroll.requested", enrollment(fmt.Sprint("r", i)))
		}
		b.run(b.mandates(), time.Minute, b.published("mandate.enroll.succeeded.*", n))
		failed := false
		b.script = func(x exchange) reply { // the second page fails once
			if x.page == "2" && !failed {
				failed = true
				return reply{status: http.StatusInternalServerError}
			}
			return reply{}
		}
		b.publish("mandate.transactions.requested", map[string]any{"request_id": "t1"})
		b.publish("mandate.transactions.requested", map[string]any{"request_id": "t2", "order_number": "order-r7"})
		b.publish("mandate.transactions.requested", map[string]any{"request_id": "t3", "max_pages": 1})
		b.publish("mail.account.requested", map[string]any{"request_id": "a1"})
		b.publish("mail.account.requested", []byte(`{}`))
		b.run(b.mandates(), time.Minute, b.published("mandate.transactions.listed.*", 3))
		b.run(b.mails(), time.Minute, b.published("mail.account.reported.*", 2))
		for id, want := range map[string][2]int{"t1": {3, n}, "t2": {1, 1}, "t3": {1, 25}} {
			e := b.wantOne("mandate.transactions.listed." + id)
			if number(e.Body["pages"]) != want[0] || number(e.Body["total"]) != want[1] {
				t.Errorf("%s: %s", id, e.Raw)
			}
			if got := b.count("mandate.transactions.page." + id); got != want[0] {
				t.Errorf("%s: %d pages published, want %d", id, got, want[0])
			}
		}
		e := b.wantOne("mail.account.reported.a1")
		if e.Body["account"].(map[string]any)["limit_quota"] == nil {
			t.Errorf("body: %s", e.Raw)
		}
		b.wantOne("mail.account.reported.MAIL_REQUESTS-2")
	})
}
