package console

import (
	"html"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"errand/internal/bus"
)

func TestWhatBecameOfAMandateIsShownWithoutThePayer(t *testing.T) {
	t.Parallel()
	in := installed(t)
	approved := body{"order_number": "DD001", "status": "approved", "mandate_status": "active",
		"transaction": body{"payer_name": "Ann Tester", "status_description": "Approved", "created_at": "2026-01-31 10:00:00"}}
	in.store("mandate.enroll.succeeded.order-1", body{"request_id": "order-1"})
	in.store("mandate.callback.received.order-1", body{"method": "POST", "bytes": 312, "checksum": "valid", "body": "payer=Ann Tester"})
	in.store("mandate.application.approved.order-1", approved)
	in.store("mandate.deduction.failed.expired", approved)
	in.store("mandate.transactions.watermark", body{"complete_through": time.Now()})
	for path, shown := range map[string][]string{
		"/requests/order-1": {"POST, 312B, checksum: valid.", "The mandate is active.", `<span>application</span>`,
			`"status": "approved"`},
		"/requests/expired": {"No event of the request itself is kept", `<span>deduction</span>`,
			"Made at 2026-01-31 10:00:00. The mandate is active."},
	} {
		status, page := in.get(path)
		for _, text := range shown {
			if status != http.StatusOK || !strings.Contains(html.UnescapeString(page), text) {
				t.Errorf("%s, %d, does not show %q:\n%s", path, status, text, page)
			}
		}
		for _, secret := range []string{"Ann Tester", "DD001"} {
			if strings.Contains(page, secret) {
				t.Errorf("%s shows %q", path, secret)
			}
		}
	}
	if _, page := in.post("/requests/order-1/reveal", url.Values{"why": {"the payer asks"}}); strings.Count(page, "Ann Tester") != 2 {
		t.Errorf("revealed, the page is\n%s", page)
	}
	in.shows("/queues", "no transaction-poller answers")
	for _, program := range []string{bus.LogPoller, bus.TransactionPoller} {
		if err := bus.AnswerStatus(in.js.Conn(), program, func() bus.ProgramStatus { return bus.ProgramStatus{} }); err != nil {
			t.Fatal(err)
		}
	}
	in.shows("/queues", "The log-poller has started and read nothing yet")
	in.shows("/queues", "the transaction-poller has started and read nothing yet")
}
