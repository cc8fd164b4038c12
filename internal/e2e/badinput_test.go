package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"errand/internal/sandbox"
)

// Every kind of bad input ends as failed/invalid_request that names the field, its
// bytes stand on dead.…, and no upstream is called.
func TestBadInputIsTold(t *testing.T) {
	type bad struct{ body, field string }
	for subject, cases := range map[string][]bad{
		"mandate.enroll.requested": {
			{"", "body"}, {"{", "body"}, {"[]", "body"}, {"null", "body"}, {"\xff\xfe", "body"}, {`{"a":1}{"b":2}`, "body"},
			{`{"order_number":"o"}`, "amount"}, {`{"orderNumber":"o"}`, "orderNumber"}, {`{"amount":4.99}`, "amount"},
			{`{"amount":"30000.01"}`, "amount"}, {`{"amount":"1e3"}`, "amount"}, {`{"amount":100.001}`, "amount"}, {`{"payer_id":"12a"}`, "payer_id"},
			{`{"payer_email":"x"}`, "payer_email"}, {`{"request_id":"a.b"}`, "request_id"}, {`{"request_id":"*"}`, "request_id"},
			{`{"on_unknown":"maybe"}`, "on_unknown"}, {`{"give_up_at":"tomorrow"}`, "give_up_at"}, {`{"amount":5,"amount":6}`, "amount"},
			{`{"effective_date":"2026-02-30"}`, "effective_date"}, {`{"return_url":"/x"}`, "return_url"}, {`{"payer_name":"a\r\nb"}`, "payer_name"},
		},
		"mail.send.requested": {
			{"nope", "body"}, {`{"to":"a@example.test","content":"c"}`, "subject"}, {`{"subject":"s","content":"c"}`, "to"},
			{`{"subject":"s","content":"c","to":[1]}`, "to"}, {`{"subject":"a\nb","content":"c","to":"a@example.test"}`, "subject"},
			{`{"subject":"s","content":"c","to":"a@example.test","headers":{"X-A":"b\r\nBcc: c@example.test"}}`, "headers"},
			{`{"subject":"s","content":"c","to":"a@example.test","headers":{"Bcc":"x@example.test"}}`, "headers"},
			{`{"subject":"s","content":"c","to":"a@example.test","as_html":2}`, "as_html"},
			{`{"subject":"s","content":"c","to":"a@example.test","to_object":{"bucket":"b","name":"n","digest":"d"}}`, "to"},
			{`{"subject":"s","content":"c","to":"a@example.test","from":"no address"}`, "from"},
		},
		"mandate.transactions.requested": {{"x", "body"}, {`{"max_pages":-1}`, "max_pages"}, {`{"page":1}`, "page"}},
		"mail.account.requested":         {{"x", "body"}, {`{"account":1}`, "account"}},
	} {
		t.Run(subject, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) {
				for _, c := range cases {
					if _, err := b.js.PublishMsg(t.Context(), &nats.Msg{Subject: subject, Data: []byte(c.body),
						Header: nats.Header{"traceparent": {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}, "X-Own": {"kept"}, "Nats-Msg-Id": {"id*" + c.body}}}); err != nil {
						t.Fatal(err)
					}
				}
				failed := strings.Replace(subject, "requested", "failed.*", 1)
				if strings.HasPrefix(subject, "mandate") {
					b.run(b.mandates(), time.Minute, b.all(failed, len(cases)))
				} else {
					b.run(b.mails(), time.Minute, b.all(failed, len(cases)))
				}
				events, dead := b.told(failed), b.told("dead."+subject)
				if len(events) != len(cases) || len(dead) != len(cases) {
					t.Fatalf("%d failed, %d dead letters, want %d\n%s", len(events), len(dead), len(cases), b.logs)
				}
				bodies := map[string]bool{}
				for _, d := range dead {
					bodies[d.Raw] = true
					if d.Header.Get("X-Own") != "kept" || d.Header.Get("Errand-Reason") != "invalid_request" || !strings.HasPrefix(d.Header.Get("Errand-Msg-Id"), "id*") {
						t.Errorf("dead letter's headers: %v", d.Header)
					}
				}
				fields := map[string]int{}
				for _, e := range events {
					if e.reason() != "invalid_request" || e.Header.Get("traceparent") == "" {
						t.Errorf("%s: %s", e.Subject, e.Raw)
					}
					named, _ := e.Body["fields"].(map[string]any)
					for f := range named {
						fields[f]++
					}
				}
				for _, c := range cases {
					if !bodies[c.body] {
						t.Errorf("the bytes of %q are not on dead.%s", c.body, subject)
					}
					if fields[c.field] == 0 {
						t.Errorf("%q: nobody names %s (named: %v)", c.body, c.field, fields)
					}
				}
				for op, n := range b.box.Oracle(sandbox.Query{}).Calls {
					if n != 0 {
						t.Errorf("%d calls of %s", n, op)
					}
				}
			})
		})
	}
}
