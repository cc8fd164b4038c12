package e2e

import (
	"fmt"
	"time"

	"errand/internal/sandbox"
)

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
	noList["to_object"] = map[string]string{"bucket": "lists", "name": "none", "digest": "SHA-256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU="}

	all := []scenario{
		{name: "mail.accepted", requests: one(3), until: accepted},
		{name: "mail.batches.accepted", requests: one(5), batch: 2, until: accepted},
		{name: "mail.repeated", requests: append(one(3), one(3)...), lasts: time.Minute},
		{name: "mail.refused", requests: one(3), faults: []sandbox.Fault{sendRefused}, until: failed},
		{name: "mail.batches.refused", requests: one(5), batch: 2, faults: []sandbox.Fault{sendRefused}, until: failed},
		{name: "mail.batches.one_refused", requests: one(5), batch: 2, faults: []sandbox.Fault{about(2, sendRefused)}, until: partial},
		{name: "mail.busy_once", requests: one(3), faults: []sandbox.Fault{often(1, sendBusy)}, until: accepted},
		{name: "mail.busy_beyond_tries", requests: one(3), faults: []sandbox.Fault{often(12, sendBusy)}, until: accepted},
		{name: "mail.batches.busy_beyond_tries", requests: one(5), batch: 2, faults: []sandbox.Fault{often(7, about(2, sendBusy))}, until: accepted},
		{name: "mail.busy_until_given_up", requests: one(3, "give_up_at", giveUp), faults: []sandbox.Fault{sendBusy}, until: failed, lasts: time.Hour},
		{name: "mail.batches.busy_until_given_up", requests: one(5, "give_up_at", giveUp), batch: 2, faults: []sandbox.Fault{about(2, sendBusy)}, until: partial, lasts: time.Hour},
		{name: "mail.held_once", requests: one(3), faults: []sandbox.Fault{often(1, sendHeld)}, until: accepted},
		{name: "mail.batches.held_once", requests: one(5), batch: 2, faults: []sandbox.Fault{often(1, about(2, sendHeld))}, until: accepted},
		{name: "mail.short_count", requests: one(3), faults: []sandbox.Fault{{Operation: "send", Kind: sandbox.Short, Accept: &short}}, until: partial},
		{name: "mail.batches.short_count", requests: one(5), batch: 2, faults: []sandbox.Fault{about(2, sandbox.Fault{Operation: "send", Kind: sandbox.Short, Accept: &short})}, until: partial},
		{name: "mail.invalid_recipients", requests: []any{some}, until: accepted},
		{name: "mail.no_valid_recipient", requests: []any{nobody}, until: failed},
		{name: "mail.no_such_list", requests: []any{noList}, until: failed},
		{name: "mail.invalid_request", requests: []any{bad}, until: failed},
		{name: "mail.unknown.cut_beyond_tries.resend", requests: one(3, "on_unknown", "resend"), faults: []sandbox.Fault{often(7, cut)}, until: accepted},
		{name: "mail.unknown.then_busy_until_given_up.resend", requests: one(3, "on_unknown", "resend", "give_up_at", giveUp), until: uncertain, lasts: time.Hour,
			faults: []sandbox.Fault{often(1, cut), sendBusy}},
		{name: "mail.unknown.then_refused.resend", requests: one(3, "on_unknown", "resend"), lasts: time.Minute, faults: []sandbox.Fault{often(1, cut), sendRefused}},
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
			single := scenario{name: fmt.Sprintf("mail.unknown.%s.%s", u.name, onUnknown), requests: one(3, "on_unknown", onUnknown), until: accepted,
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
