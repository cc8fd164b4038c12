package e2e

import (
	"fmt"
	"time"

	"errand/internal/sandbox"
)

func enrollScenarios() []scenario {
	succeeded, failed, uncertain := "mandate.enroll.succeeded.r1", "mandate.enroll.failed.*", "mandate.enroll.uncertain.r1"
	one := func(more ...string) []any { return []any{enrollment("r1", more...)} }
	giveUp := epoch.Add(40 * time.Minute).Format(time.RFC3339)
	cut := sandbox.Fault{Operation: "enroll", Kind: sandbox.Cut}
	list := func(b *bubble) { // so that it is not empty
		b.publish("mandate.enroll.requested", enrollment("other"))
		b.play(&scenario{name: "enroll.other", until: "mandate.enroll.succeeded.other"})
		time.Sleep(time.Until(epoch.Add(time.Minute)))
	}
	bad := enrollment("r1")
	bad["amount"], bad["payer_email"] = 1, "nobody"

	all := []scenario{
		{name: "enroll.succeeded", requests: one(), until: succeeded},
		{name: "enroll.given_dates", requests: one("effective_date", "2000-02-01", "link_expired_at", "2000-01-03 00:00:00"), until: succeeded},
		{name: "enroll.refused", requests: one(), faults: []sandbox.Fault{enrollRefused}, until: failed},
		{name: "enroll.busy_once", requests: one(), faults: []sandbox.Fault{often(1, enrollBusy)}, until: succeeded},
		{name: "enroll.busy_beyond_tries", requests: one(), faults: []sandbox.Fault{often(12, enrollBusy)}, until: succeeded},
		{name: "enroll.busy_until_given_up", requests: one("give_up_at", giveUp), faults: []sandbox.Fault{enrollBusy}, until: failed, lasts: time.Hour},
		{name: "enroll.held_once", requests: one(), faults: []sandbox.Fault{often(1, sandbox.Fault{Operation: "enroll", Kind: sandbox.Status, Status: 401})}, until: succeeded},
		{name: "enroll.invalid_request", requests: []any{bad}, until: failed},
		{name: "enroll.repeated", requests: []any{enrollment("r1"), enrollment("r1")}, lasts: time.Minute},
		{name: "enroll.unknown.cut_beyond_tries", requests: one(), faults: []sandbox.Fault{often(7, cut)}, until: succeeded},
		{name: "enroll.unknown.cut_until_given_up", requests: one("give_up_at", giveUp), faults: []sandbox.Fault{cut}, until: uncertain, lasts: time.Hour},
		{name: "enroll.unknown.then_busy_once", requests: one(), faults: []sandbox.Fault{often(1, cut), often(1, enrollBusy)}, until: succeeded},
		{name: "enroll.unknown.then_busy_beyond_tries", requests: one(), faults: []sandbox.Fault{often(1, cut), often(7, enrollBusy)}, until: succeeded},
		{name: "enroll.unknown.then_busy_until_given_up", requests: one("give_up_at", giveUp), faults: []sandbox.Fault{often(1, cut), enrollBusy}, until: uncertain, lasts: time.Hour},
		{name: "enroll.unknown.then_refused", requests: one(), faults: []sandbox.Fault{often(1, cut), enrollRefused}, lasts: 50 * time.Second},
		{name: "enroll.unknown.list_out_of_order", requests: one(), until: succeeded,
			faults: []sandbox.Fault{often(1, cut), often(7, sandbox.Fault{Operation: "transactions", Kind: sandbox.Status, Status: 500})}},
		{name: "enroll.interrupted", requests: one(), until: succeeded, before: func(b *bubble) {
			b.publish("mandate.enroll.started.r1", []byte(`{"request_id":"r1","at":"2000-01-01T00:00:00Z","attempt":1,"deadline":"2000-01-01T00:00:00Z"}`))
		}},
		{name: "enroll.resolved.not_listed", requests: one("on_unknown", "report"), before: list, until: "mandate.enroll.resolved.r1", lasts: 30 * time.Hour,
			faults: []sandbox.Fault{{Operation: "enroll", Kind: sandbox.Cut, Match: "order-r1"}}},
		{name: "enroll.resolved.link_expired", requests: one("on_unknown", "report"), before: list, until: "mandate.enroll.resolved.r1", lasts: 3 * time.Hour,
			faults: []sandbox.Fault{{Operation: "enroll", Kind: sandbox.AcceptCut, Match: "order-r1"}}},
	}
	conflict := scenario{name: "enroll.conflict", requests: one(), until: succeeded}
	conflict.after = func(b *bubble) {
		b.publish("mandate.enroll.requested", enrollment("r1", "payer_name", "Somebody Else"))
		b.play(&scenario{name: conflict.name, until: failed})
	}
	all = append(all, conflict)
	for _, u := range unknownFates {
		for _, onUnknown := range []string{"retry", "report"} {
			s := scenario{name: fmt.Sprintf("enroll.unknown.%s.%s", u.name, onUnknown), requests: one("on_unknown", onUnknown), until: uncertain,
				faults: []sandbox.Fault{{Operation: "enroll", Kind: u.kind, Times: 1}}}
			if onUnknown == "retry" && (u.kind == sandbox.Cut || u.kind == sandbox.Status) {
				s.until = succeeded
			}
			all = append(all, s)
		}
	}
	return all
}
