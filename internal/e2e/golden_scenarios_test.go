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
	again := func(more ...string) []any { return one(append(more, "on_unknown", "retry")...) }
	listed := func(b *bubble) { b.list() }
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
		{name: "enroll.busy_until_given_up", requests: one("give_up_at", giveUp), faults: []sandbox.Fault{enrollBusy}, until: failed,
			lasts: time.Hour},
		{name: "enroll.held_once", requests: one(), faults: []sandbox.Fault{often(1, sandbox.Fault{Operation: "enroll", Kind: sandbox.Status,
			Status: 401})}, until: succeeded},
		{name: "enroll.asked_to_wait", requests: one(), until: succeeded, lasts: time.Hour, faults: []sandbox.Fault{
			often(1, asking("enroll", 429, "7")), often(1, asking("enroll", 503, "3600"))}}, // at most a quarter of an hour
		{name: "enroll.invalid_request", requests: []any{bad}, until: failed},
		{name: "enroll.repeated", requests: []any{enrollment("r1"), enrollment("r1")}, lasts: time.Minute},
		{name: "enroll.unknown.cut_beyond_tries", before: listed, requests: again(), faults: []sandbox.Fault{often(7, cut)}, until: succeeded,
			lasts: 2 * time.Hour},
		{name: "enroll.unknown.cut_until_given_up", before: listed, requests: again("give_up_at", giveUp), faults: []sandbox.Fault{cut},
			until: uncertain, lasts: time.Hour},
		{name: "enroll.unknown.then_busy_once", before: listed, requests: again(),
			faults: []sandbox.Fault{often(1, cut), often(1, enrollBusy)}, until: succeeded},
		{name: "enroll.unknown.then_busy_beyond_tries", before: listed, requests: again(),
			faults: []sandbox.Fault{often(1, cut), often(7, enrollBusy)}, until: succeeded},
		{name: "enroll.unknown.then_busy_until_given_up", before: listed, requests: again("give_up_at", giveUp),
			faults: []sandbox.Fault{often(1, cut), enrollBusy}, until: uncertain, lasts: time.Hour},
		{name: "enroll.unknown.then_refused", before: listed, requests: again(), faults: []sandbox.Fault{often(1, cut), enrollRefused},
			lasts: 2 * time.Minute},
		{name: "enroll.unknown.then_held", before: listed, requests: again(), until: succeeded,
			faults: []sandbox.Fault{often(1, cut), often(3, sandbox.Fault{Operation: "enroll", Kind: sandbox.Status, Status: 402})}},
		{name: "enroll.unknown.list_out_of_order", before: listed, requests: again(), until: succeeded,
			faults: []sandbox.Fault{often(1, cut), often(7, sandbox.Fault{Operation: "transactions", Kind: sandbox.Status, Status: 500})}},
		{name: "enroll.interrupted", requests: again(), until: succeeded, before: func(b *bubble) {
			b.list()
			b.publish("mandate.enroll.started.r1",
				[]byte(`{"request_id":"r1","at":"2000-01-01T00:00:00Z","attempt":1,"deadline":"2000-01-01T00:00:00Z"}`))
		}},
		{name: "enroll.resolved.not_listed", requests: one("on_unknown", "report"), before: list, until: "mandate.enroll.resolved.r1",
			lasts:  30 * time.Hour,
			faults: []sandbox.Fault{{Operation: "enroll", Kind: sandbox.Cut, Match: "order-r1"}}},
		{name: "enroll.resolved.link_expired", requests: one("on_unknown", "report"), before: list, until: "mandate.enroll.resolved.r1",
			lasts:  3 * time.Hour,
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
				faults: []sandbox.Fault{{Operation: "enroll", Kind: u.kind, Times: 1}}, before: listed}
			if onUnknown == "retry" && (u.kind == sandbox.Cut || u.kind == sandbox.Status) {
				s.until = succeeded
			}
			all = append(all, s)
		}
	}
	return all
}

func mailScenarios() []scenario {
	accepted, partial, failed, uncertain := "mail.send.accepted.m1", "mail.send.partial.m1", "mail.send.failed.*", "mail.send.uncertain.m1"
	one := func(n int, more ...string) []any { return []any{message("m1", n, more...)} }
	giveUp := epoch.Add(40 * time.Minute).Format(time.RFC3339)
	cut := sandbox.Fault{Operation: "send", Kind: sandbox.Cut}
	short := 1
	some := message("m1", 3)
	some["to"] = append(some["to"].([]string), "no address", "Name <m1-0@EXAMPLE.test>", "Other <m1-3@example.test>")
	nobody, bad, noList := message("m1", 0), message("m1", 1), message("m1", 0)
	nobody["to"] = "nobody, no one"
	bad["as_html"], bad["wings"] = 2, true
	delete(noList, "to")
	noList["to_object"] = map[string]string{"bucket": "lists", "name": "none",
		"digest": "SHA-256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU="}

	all := []scenario{
		{name: "mail.accepted", requests: one(3), until: accepted},
		{name: "mail.batches.accepted", requests: one(5), batch: 2, until: accepted},
		{name: "mail.repeated", requests: append(one(3), one(3)...), lasts: time.Minute},
		{name: "mail.refused", requests: one(3), faults: []sandbox.Fault{sendRefused}, until: failed},
		{name: "mail.batches.refused", requests: one(5), batch: 2, faults: []sandbox.Fault{sendRefused}, until: failed},
		{name: "mail.batches.one_refused", requests: one(5), batch: 2, faults: []sandbox.Fault{about(2, sendRefused)}, until: partial},
		{name: "mail.busy_once", requests: one(3), faults: []sandbox.Fault{often(1, sendBusy)}, until: accepted},
		{name: "mail.asked_to_wait", requests: one(3), faults: []sandbox.Fault{often(1, asking("send", 503, "8"))}, until: accepted},
		{name: "mail.busy_beyond_tries", requests: one(3), faults: []sandbox.Fault{often(12, sendBusy)}, until: accepted},
		{name: "mail.batches.busy_beyond_tries", requests: one(5), batch: 2, faults: []sandbox.Fault{often(7, about(2, sendBusy))},
			until: accepted},
		{name: "mail.busy_until_given_up", requests: one(3, "give_up_at", giveUp), faults: []sandbox.Fault{sendBusy}, until: failed,
			lasts: time.Hour},
		{name: "mail.batches.busy_until_given_up", requests: one(5, "give_up_at", giveUp), batch: 2,
			faults: []sandbox.Fault{about(2, sendBusy)}, until: partial, lasts: time.Hour},
		{name: "mail.held_once", requests: one(3), faults: []sandbox.Fault{often(1, sendHeld)}, until: accepted},
		{name: "mail.batches.held_once", requests: one(5), batch: 2, faults: []sandbox.Fault{often(1, about(2, sendHeld))}, until: accepted},
		{name: "mail.short_count", requests: one(3), faults: []sandbox.Fault{{Operation: "send", Kind: sandbox.Short, Accept: &short}},
			until: partial},
		{name: "mail.batches.short_count", requests: one(5), batch: 2,
			faults: []sandbox.Fault{about(2, sandbox.Fault{Operation: "send", Kind: sandbox.Short, Accept: &short})}, until: partial},
		{name: "mail.invalid_recipients", requests: []any{some}, until: accepted},
		{name: "mail.no_valid_recipient", requests: []any{nobody}, until: failed},
		{name: "mail.no_such_list", requests: []any{noList}, until: failed},
		{name: "mail.invalid_request", requests: []any{bad}, until: failed},
		{name: "mail.unknown.cut_beyond_tries.resend", requests: one(3, "on_unknown", "resend"), faults: []sandbox.Fault{often(7, cut)},
			until: accepted},
		{name: "mail.unknown.then_busy_until_given_up.resend", requests: one(3, "on_unknown", "resend", "give_up_at", giveUp), until: uncertain,
			lasts:  time.Hour,
			faults: []sandbox.Fault{often(1, cut), sendBusy}},
		{name: "mail.unknown.then_refused.resend", requests: one(3, "on_unknown", "resend"), lasts: time.Minute,
			faults: []sandbox.Fault{often(1, cut), sendRefused}},
		{name: "mail.unknown.then_busy_then_refused.resend", requests: one(3, "on_unknown", "resend"), until: uncertain,
			faults: []sandbox.Fault{often(1, cut), often(7, sendBusy), sendRefused}},
		{name: "mail.batches.unknown.then_busy_then_refused.resend", requests: one(5, "on_unknown", "resend"), batch: 2, until: uncertain,
			faults: []sandbox.Fault{often(1, about(2, cut)), often(7, about(2, sendBusy)), about(2, sendRefused)}},
		{name: "mail.batches.unknown.then_busy_until_given_up.resend", requests: one(5, "on_unknown", "resend", "give_up_at", giveUp), batch: 2,
			until: uncertain, lasts: time.Hour, faults: []sandbox.Fault{often(1, about(2, cut)), about(2, sendBusy)}},
		{name: "mail.batches.unknown.then_refused.resend", requests: one(5, "on_unknown", "resend"), batch: 2, until: uncertain,
			faults: []sandbox.Fault{often(1, about(2, cut)), about(2, sendRefused)}},
	}
	conflict := scenario{name: "mail.conflict", requests: one(3), until: accepted}
	conflict.after = func(b *bubble) {
		b.publish("mail.send.requested", message("m1", 2))
		b.play(&scenario{name: conflict.name, until: failed})
	}
	all = append(all, conflict)
	for _, u := range unknownFates {
		for _, onUnknown := range []string{"report", "resend"} {
			single := scenario{name: fmt.Sprintf("mail.unknown.%s.%s", u.name, onUnknown), requests: one(3, "on_unknown", onUnknown),
				until:  accepted,
				faults: []sandbox.Fault{{Operation: "send", Kind: u.kind, Times: 1}}}
			if onUnknown == "report" {
				single.until = uncertain
			}
			batches := single
			batches.name, batches.batch, batches.requests = "mail.batches"+single.name[len("mail"):], 2, one(5, "on_unknown", onUnknown)
			batches.faults = []sandbox.Fault{about(2, single.faults[0])}
			all = append(all, single, batches)
		}
	}
	return all
}
