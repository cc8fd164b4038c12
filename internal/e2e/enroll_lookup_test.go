package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"errand/internal/sandbox"
)

// listing has the transaction list answer every look with these records.
func listing(meta string, records ...string) sandbox.Fault {
	body := fmt.Sprintf(`{"data":[%s],"links":{"next":null},"meta":%s}`, strings.Join(records, ","), meta)
	return sandbox.Fault{Operation: "transactions", Kind: sandbox.Status, Status: 200, Body: json.RawMessage(body)}
}

// transaction is a record of the list that was made just now; order is JSON.
func transaction(order string, status int) string {
	return fmt.Sprintf(`{"id":"TXN1","transaction_type":"Enrollment","created_at":%q,"order_number":%s,"amount":100,"status":%d}`,
		upstreamTime(time.Now()), order, status)
}

// An upstream may show an order number in another form than it was given: it is the same
// one: its enrollment is not made again, and is resolved by the same record. The forms are tested in internal/mandates.
func TestAnOrderNumberIsFoundInAnySpelling(t *testing.T) {
	for order, shown := range map[string]string{"DD 001 x": `"dd0 01X "`, "1001": `1001`} {
		runInBubble(t, order, func(t *testing.T, b *bubble) {
			b.fault(sandbox.Fault{Operation: "enroll", Kind: sandbox.Cut, Times: 1})
			b.fault(listing(`{"total":3}`, transaction(`"somebody-elses"`, 3), transaction(shown, 3), transaction("7", 3)))
			b.publish("mandate.enroll.requested", enrollment("r1", "order_number", order, "on_unknown", "retry"))
			b.run(b.mandates(), 10*time.Minute, b.ended("mandate.enroll", "r1"))
			n := len(b.of("enroll"))
			errorIf(t, n != 1, "%d calls, want one: %s", n, b.timeline())
			e := b.wantEnd("mandate.enroll", "uncertain", "r1")
			errorIf(t, e.reason() != "link_lost" || e.evidence() != 1, "want link_lost and the one record: %s", e.Raw)
			b.run(b.mandates(), 15*time.Minute, b.published("mandate.enroll.resolved.r1", 1))
			e = b.wantOne("mandate.enroll.resolved.r1")
			errorIf(t, e.Body["outcome"] != "succeeded" || e.evidence() != 1, "want succeeded and the one record: %s", e.Raw)
		})
	}
}

// A list that does not show all that it counts, or shows what was not asked for, does not
// prove that an enrollment was not made: it is never made again for it. More such lists are read in internal/mandates.
func TestNoEnrollmentIsMadeAgainOverAListThatProvesNothing(t *testing.T) {
	full(t)
	others := transaction(`"somebody-elses"`, 3)
	for _, c := range []struct {
		name string
		list sandbox.Fault
	}{
		{"counts more than it shows", listing(`{"total":1}`)},
		{"shows nothing to anybody", listing(`{}`)},
		{"not narrowed", listing(`{"total":1}`, others)},
		{"no order number that is one", listing(`{"total":1}`, transaction("null", 0))},
	} {
		runInBubble(t, c.name, func(t *testing.T, b *bubble) {
			giveUp := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
			b.fault(sandbox.Fault{Operation: "enroll", Kind: sandbox.Cut, Times: 1})
			b.fault(c.list)
			b.publish("mandate.enroll.requested", enrollment("r1", "on_unknown", "retry", "give_up_at", giveUp.Format(time.RFC3339)))
			b.run(b.mandates(), 2*time.Hour, b.ended("mandate.enroll", "r1"))
			n := len(b.of("enroll"))
			errorIf(t, n != 1, "%d calls, want one: %.300s", n, b.timeline())
			e := b.wantEnd("mandate.enroll", "uncertain", "r1")
			errorIf(t, e.at(t).After(giveUp.Add(time.Minute)) || e.reason() == "link_lost", "want it by %v, and not as listed: %s", giveUp, e.Raw)
		})
	}
}

// An earlier enrollment under the same order number says nothing of this one: its link has expired, and this one is made only later.
func TestAnOlderRecordDoesNotResolveALaterEnrollment(t *testing.T) {
	full(t)
	inBubble(t, func(t *testing.T, b *bubble) {
		const order, made = "DD001", 20 * time.Minute
		b.publish("mandate.enroll.requested", enrollment("r0", "order_number", order))
		b.run(b.mandates(), time.Minute, b.published("mandate.enroll.succeeded.r0", 1))
		time.Sleep(24 * time.Hour)

		b.fault(sandbox.Fault{Operation: "enroll", Kind: sandbox.Delay, Delay: sandbox.Duration(made), Times: 1})
		far := upstreamTime(time.Now().Add(72 * time.Hour))
		began := time.Now()
		b.publish("mandate.enroll.requested", enrollment("r1", "order_number", order, "on_unknown", "report", "link_expired_at", far))
		b.run(b.mandates(), 5*time.Minute, b.ended("mandate.enroll", "r1"))
		b.wantEnd("mandate.enroll", "uncertain", "r1")

		b.run(b.mandates(), time.Until(began.Add(made-time.Minute)), nil)
		b.wantNone("mandate.enroll.resolved.*")
		time.Sleep(2 * time.Minute)
		n := b.box.Enrolled(order)
		fatalIf(t, n != 2, "%d enrollments, want the older one and this one", n)
		b.decide(order, sandbox.Approve)
		b.run(b.mandates(), 2*time.Hour, b.published("mandate.enroll.resolved.r1", 1))
		e := b.wantOne("mandate.enroll.resolved.r1")
		errorIf(t, e.Body["outcome"] != "succeeded", "resolved: %s", e.Raw)
	})
}
