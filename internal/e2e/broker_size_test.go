package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"errand/internal/bus"
	"errand/internal/sandbox"
	"errand/pkg/messages"
)

// Servers that take messages of 64 KiB, and an upstream that says more than that: each
// request ends, and its outcome says that it was abridged.
func TestOutcomesLargerThanAMessageArePublishedAbridged(t *testing.T) {
	const recipients = 300
	dir := releaseBuild.programs(t)
	parallel(t)
	b := brokers(t, 1, "max_payload: 65536")[0]
	in := installAt(t, dir, b.url, 1, "MAIL_BATCH_SIZE=1", "MAIL_BATCH_PARALLEL=16")
	long := strings.Repeat("é", 100<<10)
	said := func(v any) json.RawMessage {
		body := encode(t, v)
		return body
	}
	var records []map[string]any
	for i := range 100 {
		records = append(records, map[string]any{"id": fmt.Sprint("TXN", i), "order_number": "order-lost", "more": long[:2000]})
	}
	const url = "https://pay.example/?a=1&b=2"
	in.fault(sandbox.Fault{Operation: "enroll", Match: "order-long", Kind: sandbox.AcceptStatus, Status: http.StatusOK,
		Body: said(map[string]any{"url": url, "order_number": "order-long", "more": long})})
	in.fault(sandbox.Fault{Operation: "enroll", Match: "order-lost", Kind: sandbox.AcceptCut})
	in.fault(sandbox.Fault{Operation: "transactions", Kind: sandbox.Status, Status: http.StatusOK, Body: said(map[string]any{"data": records,
		"links": map[string]any{"next": nil}, "meta": map[string]any{"current_page": 1, "last_page": 1, "per_page": 100, "total": 100}})})
	in.fault(sandbox.Fault{Operation: "send", Kind: sandbox.Status, Status: http.StatusUnprocessableEntity,
		Body: said(map[string]any{"message": long})})
	for _, request := range []string{"long", "lost"} {
		in.publish("mandate.enroll.requested", enrollment(request, "on_unknown", "report"))
	}
	in.publish("mandate.transactions.requested", map[string]any{"request_id": "list"})
	in.publish("mail.send.requested", message("mail", recipients))
	programs := []*process{in.start("mandate-consumer"), in.start("mail-consumer")}
	in.waitOutcomes("mandate.*.*.*", 3, time.Minute)
	in.waitOutcomes("mail.send.*.*", 1, time.Minute)
	for _, p := range programs {
		in.untilReady(p)
		p.stop(time.Minute)
	}

	well := decode[messages.EnrollSucceeded](t, in.wantOne("mandate.enroll.succeeded.long"))
	var answer map[string]string
	if err := json.Unmarshal(well.Enrollment, &answer); err != nil || answer["url"] != url || answer["order_number"] != "order-long" ||
		answer["more"] != "" || !well.Abridged {
		t.Errorf("enrollment: %v, abridged %v: %.300s", err, well.Abridged, well.Enrollment)
	}
	lost := decode[messages.EnrollUncertain](t, in.wantOne("mandate.enroll.uncertain.lost"))
	if n := len(lost.Evidence); lost.Reason != messages.ReasonLinkLost || n == 0 || n == 100 || !lost.Abridged {
		t.Errorf("%s with %d records, abridged %v", lost.Reason, n, lost.Abridged)
	}
	page := decode[messages.TransactionsPage](t, in.wantOne("mandate.transactions.page.list"))
	n := len(page.Records)
	errorIf(t, n == 0 || n == 100 || !page.Abridged, "page of %d records, abridged %v", n, page.Abridged)
	listed := decode[messages.TransactionsListed](t, in.wantOne("mandate.transactions.listed.list"))
	errorIf(t, listed.Total != 100 || listed.Abridged, "listed: %+v", listed)
	mail := decode[messages.SendOutcome](t, in.wantOne("mail.send.failed.mail"))
	if n := len(mail.Unsettled); n == 0 || n == recipients || mail.UnsettledCount != recipients || mail.Recipients != recipients ||
		!mail.Abridged {
		t.Errorf("%d of %d unsettled batches are listed, abridged %v", n, mail.UnsettledCount, mail.Abridged)
	}
	equal(t, "dead letters", in.count("dead.mandate.enroll.requested")+in.count("dead.mail.send.requested"), 2)
	for _, q := range []bus.Queue{bus.EnrollQueue, bus.TransactionsQueue, bus.SendQueue} {
		in.untilSettled(q)
	}
	if o := in.totals(); o.Calls["enroll"] != 2 || o.Calls["send"] != recipients {
		t.Errorf("%d enrollments and %d messages called", o.Calls["enroll"], o.Calls["send"])
	}
}
