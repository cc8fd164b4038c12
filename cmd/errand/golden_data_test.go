package main

import (
	"encoding/json"
	"time"

	"github.com/nats-io/nats.go"

	"errand/internal/bus"
	"errand/internal/oncall/inspect"
	"errand/pkg/messages"
)

func stuckOf() inspect.Stuck {
	held := "held: mandate service (enroll) answers 503: overloaded or out of order"
	s := inspect.Stuck{Looked: 3, Total: 41, Requests: []inspect.Open{
		{RequestID: "enroll-signup-4711", Operation: messages.Enroll, State: messages.Deferred, Published: before(26 * time.Minute),
			Since:  before(20 * time.Minute),
			Reason: messages.ReasonBusy, Attempt: 5, Next: beforeAt(-4 * time.Minute), Why: held},
		{RequestID: "enroll-signup-4712", Operation: messages.Enroll, State: inspect.Queued, Published: before(25 * time.Minute),
			Since: before(25 * time.Minute), Why: held, Place: 1},
		{RequestID: "send-invoice-17", Operation: messages.Send, State: messages.Started, Published: before(3 * time.Minute),
			Since: before(2 * time.Minute), Attempt: 1,
			Next: beforeAt(time.Minute), Why: "overdue; a worker finds out what was done"}}}
	s.Causes = inspect.Causes(s.Requests)
	return s
}

func rowsOfList() []inspect.Row {
	return []inspect.Row{
		{Time: before(time.Minute), RequestID: "enroll-signup-4713", Operation: messages.Enroll, State: messages.Succeeded, OrderNumber: "DD003"},
		{Time: before(2 * time.Minute), RequestID: "enroll-signup-4712", Operation: messages.Enroll, State: messages.Failed,
			Reason: messages.ReasonRefused, HTTPStatus: 422,
			OrderNumber: "DD002", Message: "payer_id: The payer id is not known to the bank."},
		{Time: before(3 * time.Minute), RequestID: "enroll-signup-4711", Operation: messages.Enroll, State: messages.Failed,
			Reason: messages.ReasonRefused, HTTPStatus: 422, OrderNumber: "DD001", Message: "again"},
		{Time: before(26 * time.Hour), RequestID: "MAIL_REQUESTS-17", Operation: messages.Send, State: messages.Failed,
			Reason: messages.ReasonInvalidRequest, Message: "invalid request: to is missing"},
	}
}

// kept is an event as a stream has it.
func kept(ago time.Duration, sequence uint64, subject, body string, header ...string) inspect.Event {
	e := inspect.Event{Time: before(ago), Subject: subject, Sequence: sequence, Body: json.RawMessage(body),
		Message: bus.Message{Subject: subject, Sequence: sequence, Time: before(ago).Time, Data: []byte(body), Header: nats.Header{}}}
	for i := 0; i < len(header); i += 2 {
		e.Message.Header.Set(header[i], header[i+1])
	}
	return e
}

func findingOf() inspect.Finding {
	return inspect.Finding{Found: []inspect.Found{
		{RequestID: "send-invoice-17", Operation: messages.Send, State: messages.Accepted, Time: before(time.Hour), As: "recipient",
			Mail: "bounced 550 5.1.1", MailTime: beforeAt(50 * time.Minute)},
		{RequestID: "send-news-2026-01", Operation: messages.Send, State: messages.Accepted, Time: before(25 * time.Hour), As: "recipient",
			Mail: "delivered 250 2.0.0", MailTime: beforeAt(25 * time.Hour)},
		{RequestID: "enroll-signup-4711", Operation: messages.Enroll, State: messages.Succeeded, Time: before(48 * time.Hour), As: "payer"}},
		Rows: []inspect.Event{kept(time.Hour, 9, "mail.delivery.delivered.unmatched",
			`{"entry":{"to":"ann@example.com"},"match":{"confidence":"ambiguous","candidates":["send-a","send-b"]}}`)},
		Unread: []string{"0a1b2c3d"}}
}

func storiesOf() []inspect.Story {
	s := inspect.Story{RequestID: "send-invoice-17", Operation: messages.Send, State: messages.Failed,
		Says: "failed: refused 422, The sender is unknown, 10m ago",
		Events: []inspect.Event{
			kept(30*time.Hour, 1, "mail.send.started.send-invoice-17", `{"request_id":"send-invoice-17","attempt":1,"recipients":1500,"batches":2}`),
			kept(11*time.Minute, 2, "mail.batch.refused.send-invoice-17.2",
				`{"batch":2,"first":1000,"count":500,"reason":"refused","http_status":422}`),
			kept(10*time.Minute, 3, "mail.send.failed.send-invoice-17",
				`{"request_id":"send-invoice-17","attempt":2,"reason":"refused","http_status":422,"message":"The sender is unknown."}`)},
		Deliveries: map[string]int{"delivered": 1, "bounced": 1}, Delivered: []inspect.Event{
			kept(9*time.Minute, 4, "mail.delivery.delivered.send-invoice-17",
				`{"entry":{"to":"ann@example.com"},"smtp":{"code":250,"enhanced":"2.0.0"}}`),
			kept(8*time.Minute, 5, "mail.delivery.bounced.send-invoice-17",
				`{"entry":{"to":"bob@example.com"},"smtp":{"code":550,"enhanced":"5.1.1"}}`)},
		Dead: lettersOf()}
	waits := stuckOf().Requests[1]
	return []inspect.Story{s, {RequestID: "send-invoice-17", Operation: messages.Enroll, State: inspect.Queued, Events: []inspect.Event{},
		Waits: &waits,
		Says:  "queued, place 41: held: mandate service (enroll) answers 503: overloaded or out of order, published 25m ago"}}
}

// mandateOf is an enrollment that was approved, and two of its deductions failed.
func mandateOf() []inspect.Story {
	return []inspect.Story{{RequestID: "enroll-signup-4713", Operation: messages.Enroll, State: messages.Succeeded, Says: "succeeded, 30h ago",
		Events: []inspect.Event{
			kept(30*time.Hour, 1, "mandate.enroll.started.enroll-signup-4713",
				`{"request_id":"enroll-signup-4713","attempt":1,"order_number":"DD003"}`),
			kept(30*time.Hour, 2, "mandate.enroll.succeeded.enroll-signup-4713",
				`{"request_id":"enroll-signup-4713","attempt":1,"order_number":"DD003"}`)},
		Mandate: []inspect.Event{
			kept(29*time.Hour, 3, "mandate.application.new.enroll-signup-4713",
				`{"request_id":"enroll-signup-4713","order_number":"DD003","status":"new","mandate_status":"new","match":{"confidence":"exact"},`+
					`"transaction":{"amount":"100.50",`+
					`"order_number":"DD003","created_at":"2026-01-30 07:00:00"}}`),
			kept(28*time.Hour, 4, "mandate.callback.received.enroll-signup-4713",
				`{"request_id":"enroll-signup-4713","method":"POST","bytes":312,"checksum":"valid"}`),
			kept(28*time.Hour, 5, "mandate.application.approved.enroll-signup-4713",
				`{"request_id":"enroll-signup-4713","order_number":"DD003","kind":"application","status":"approved","by":"callback",`+
					`"mandate_status":"active","match":{"confidence":"exact"},"transaction":{"amount":"100.50"}}`),
			kept(time.Hour, 6, "mandate.deduction.failed.enroll-signup-4713",
				`{"request_id":"enroll-signup-4713","order_number":"DD003","kind":"deduction","status":"failed","by":"list",`+
					`"mandate_status":"active","match":{"confidence":"exact"},"transaction":{"amount":"100.50",`+
					`"order_number":"DD003-1","created_at":"2026-01-31 02:00:00"}}`),
			kept(time.Hour, 7, "mandate.deduction.failed.enroll-signup-4713",
				`{"request_id":"enroll-signup-4713","order_number":"DD003","kind":"deduction","status":"failed","by":"list",`+
					`"mandate_status":"active","match":{"confidence":"exact"},"transaction":{"amount":"100.50",`+
					`"order_number":"DD003","created_at":"2026-01-31 10:00:00"}}`)}}}
}

// unmatchedOf is what is found of an order number whose request is gone.
func unmatchedOf() inspect.Finding {
	return inspect.Finding{Found: []inspect.Found{}, Records: []inspect.Event{
		kept(time.Hour, 9, "mandate.deduction.approved.unmatched", `{"order_number":"DD002","match":{"confidence":"none"}}`),
		kept(time.Minute, 11, "mandate.application.new.unmatched",
			`{"order_number":"DD002","match":{"confidence":"ambiguous","candidates":["signup-a","signup-b"]}}`)}}
}

func lettersOf() []inspect.DeadLetter {
	e := kept(10*time.Minute, 17, "dead.mail.send.requested",
		`{"request_id":"send-invoice-17","to":["ann@example.com"],"content":"\u001b[2J"}`)
	e.Headers = map[string]string{"Errand-Request-Id": "send-invoice-17", "Errand-Reason": "refused",
		"Errand-Message": "The sender is unknown.\x1b[2J"}
	return []inspect.DeadLetter{{Sequence: 17, Time: e.Time, RequestID: "send-invoice-17", Operation: messages.Send,
		Reason:  messages.ReasonRefused,
		Message: "The sender is unknown.", Now: messages.Failed, Bytes: 84, Event: e}}
}
