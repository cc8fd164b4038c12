package schema

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"errand/internal/wire"
	"errand/internal/wire/mailkey"
	"errand/pkg/messages"
)

// secret is no installation's.
var secret = mailkey.NewSecret(strings.Repeat("s", 64))

// events are all that are published, in the order in which a request meets them, each with a body such as it has.
var events = slices.Concat(
	of(messages.Enroll, signup, []stated{
		{messages.Started, 1, &messages.EnrollStarted{Deadline: at(35), Fingerprint: fingerprint, OrderNumber: "DD001",
			Defaults: messages.Defaults{MaxFrequency: "9", EffectiveDate: "2026-02-01"}}},
		{messages.Deferred, 5, busy()},
		{messages.Succeeded, 1, &messages.EnrollSucceeded{APIVersion: "v3", OrderNumber: "DD001",
			Enrollment: json.RawMessage(`{"url":"https://pay.example/enroll/1","order_number":"DD001","amount":100.5}`), Fingerprint: fingerprint}},
		{messages.Failed, 0, &messages.FailedBody{Reason: messages.ReasonInvalidRequest,
			Message: "invalid request: amount must have at most two decimals",
			Fields:  map[string][]string{"amount": {"must have at most two decimals"}}, Fingerprint: fingerprint}},
		{messages.Uncertain, 1, &messages.EnrollUncertain{Reason: messages.ReasonLinkLost,
			Message: "listed under its order number, and the answer with the link never came", OrderNumber: "DD001", Evidence: records,
			Fingerprint: fingerprint}},
		{messages.Resolved, 1, &messages.EnrollResolved{Outcome: messages.Succeeded, By: messages.ByTransactionList, OrderNumber: "DD001",
			Evidence: records, Fingerprint: fingerprint}},
		{messages.Reopened, 0, &messages.ReopenedBody{By: messages.ByCorrection,
			Was: messages.PriorOutcome{State: messages.Failed, Reason: messages.ReasonInvalidRequest}, Fingerprint: fingerprint}},
		{messages.Erased, 1, &messages.ErasedBody{Was: &messages.PriorOutcome{State: messages.Succeeded}}},
	}),
	of(messages.Transactions, list, []stated{
		{messages.Page, 1, &messages.TransactionsPage{Page: 1, Records: records, Total: 1, Deadline: at(35), Fingerprint: fingerprint}},
		{messages.Listed, 1, &messages.TransactionsListed{Pages: 1, Total: 1, Fingerprint: fingerprint}},
		{messages.Failed, 1, refused()},
		{messages.Reopened, 1, redriven()},
		{messages.Erased, 1, &messages.ErasedBody{Was: &messages.PriorOutcome{State: messages.Listed}}},
	}),
	of(messages.Send, news, []stated{
		{messages.Started, 1, &messages.SendStarted{Deadline: at(35), Fingerprint: fingerprint, Recipients: 2500, Batches: 3, BatchSize: 1000}},
		{messages.Deferred, 5, busy()},
		{messages.Accepted, 3, &messages.SendOutcome{Recipients: 2500, Accepted: 2500, Batches: 3, Duplicates: 4, InvalidCount: 1,
			Invalid: invalid, Fingerprint: fingerprint}},
		{messages.Partial, 3, &messages.SendOutcome{Recipients: 2500, Accepted: 1500, Batches: 3,
			Unsettled: second(messages.Refused, messages.ReasonRefused), UnsettledCount: 1, Fingerprint: fingerprint}},
		{messages.Failed, 0, &messages.SendOutcome{Reason: messages.ReasonConflict, Message: "another request has this id", ConflictsWith: news,
			Fingerprint: fingerprint}},
		{messages.Uncertain, 3, &messages.SendOutcome{Recipients: 2500, Accepted: 1500, Batches: 3,
			Unsettled: second(messages.Uncertain, messages.ReasonNoAnswer), UnsettledCount: 1, Reason: messages.ReasonNoAnswer,
			Message: "no answer to a batch", Fingerprint: fingerprint}},
		{messages.Resolved, 3, &messages.SendResolved{Outcome: messages.Accepted, By: messages.BySendingLog,
			Evidence:    messages.SendEvidence{CompleteThrough: at(3600), Seen: 998, Count: 1000, Batches: []messages.BatchEvidence{evidence}},
			Fingerprint: fingerprint}},
		{messages.Reopened, 3, &messages.ReopenedBody{By: "ann", Why: "the quota was raised", Was: messages.PriorOutcome{State: messages.Partial},
			Batches: []int{2}, Fingerprint: fingerprint}},
		{messages.Erased, 3, &messages.ErasedBody{Was: &messages.PriorOutcome{State: messages.Accepted}}},
	}),
	of(messages.Batch, batch, []stated{
		{messages.Started, 2, &messages.BatchBody{Batch: 2, First: 1000, Count: 1000, Deadline: new(at(35)),
			Secret: &messages.SecretKeys{ID: secret.ID(), Keys: secret.KeysOf("shop@example.com", []string{"ann@example.com"})}}},
		{messages.Accepted, 2, &messages.BatchBody{Batch: 2, First: 1000, Count: 1000, Accepted: new(1000)}},
		{messages.Refused, 2, &messages.BatchBody{Batch: 2, First: 1000, Count: 1000, Reason: messages.ReasonRefused, HTTPStatus: 422,
			Message: "Refused."}},
		{messages.Deferred, 2, &messages.BatchBody{Batch: 2, First: 1000, Count: 1000, NotBefore: new(at(60)), Reason: messages.ReasonBusy,
			HTTPStatus: 503}},
		{messages.Uncertain, 2, &messages.BatchBody{Batch: 2, First: 1000, Count: 1000, Reason: messages.ReasonNoAnswer,
			Message: "no answer within 30s"}},
		{messages.Erased, 2, &messages.ErasedBody{}},
	}),
	of(messages.Account, account, []stated{
		{messages.Reported, 1, &messages.AccountReported{Fingerprint: fingerprint,
			Account: json.RawMessage(`{"organisation":"Shop","suspended":false,"limit_quota":"10000","credit_balance":9900}`)}},
		{messages.Failed, 1, refused()},
		{messages.Reopened, 1, redriven()},
		{messages.Erased, 1, &messages.ErasedBody{Was: &messages.PriorOutcome{State: messages.Reported}}},
	}),
	of(messages.Delivery, news, []stated{
		{messages.Delivered, 2, row("250 2.0.0 ok", messages.SMTP{Code: 250, Enhanced: "2.0.0"})},
		{messages.Deferred, 2, row("451 4.7.1 later", messages.SMTP{Code: 451, Enhanced: "4.7.1"})},
		{messages.Bounced, 2, row("550 5.1.1 no such user", messages.SMTP{Code: 550, Enhanced: "5.1.1"})},
		{messages.Unknown, 2, row("", messages.SMTP{})},
		{messages.Summary, 3, &messages.SummaryBody{Recipients: 2500, Accepted: 2500, Delivered: 2400, Deferred: 10, Bounced: 60, Queued: 30,
			CompleteThrough: at(3600)}},
		{messages.Erased, 0, &messages.ErasedBody{EventID: "9f2c4a2fac3a1f4f"}},
	}),
	of(messages.Application, signup, []stated{
		{"approved", 0, &messages.TransactionBody{EventID: "0f3c5a2fac3a1f4f9f2c4a2fac3a1f4f", Kind: messages.ApplicationKind, Status: "approved",
			MandateStatus: "approved", OrderNumber: "DD001", Match: messages.TransactionMatch{Confidence: messages.MatchExact},
			By: messages.ByCallback, Transaction: approved}},
	}),
	of(messages.Deduction, messages.Unmatched, []stated{
		{"failed", 0, &messages.TransactionBody{EventID: "1e4c5a2fac3a1f4f9f2c4a2fac3a1f4f", Kind: messages.DeductionKind, Status: "failed",
			MandateStatus: "approved", OrderNumber: "DD001", Match: messages.TransactionMatch{Confidence: messages.MatchAmbiguous},
			By: messages.ByList, Transaction: bounced}},
	}),
	of(messages.Application, signup, []stated{{messages.Erased, 0, &messages.ErasedBody{EventID: "0f3c5a2fac3a1f4f9f2c4a2fac3a1f4f"}}}),
	of(messages.Deduction, signup, []stated{{messages.Erased, 0, &messages.ErasedBody{EventID: "1e4c5a2fac3a1f4f9f2c4a2fac3a1f4f"}}}),
	of(messages.Transactions, "", []stated{
		{messages.Marked, 0, &messages.Watermark{CompleteThrough: at(0), TotalRecord: 4000, New: 3, By: messages.ByWholeLog}},
	}),
	of(messages.Callback, signup, []stated{
		{messages.Received, 0, &messages.CallbackBody{Method: "POST", ContentType: "application/json",
			Body: `{"order_number":"DD001","status":"3"}`, Encoding: messages.CallbackText, Bytes: 37, Digest: strings.Repeat("5f", 32),
			Checksum: messages.ChecksumAbsent}},
	}),
	of(messages.Log, "", []stated{
		{messages.Marked, 0, &messages.Watermark{CompleteThrough: at(0), TotalRecord: 120000, New: 12, By: messages.ByNewestFirst}},
	}),
)

// stated is the state of an event, the attempts before it, and its body but for what every event begins with.
type stated struct {
	state   messages.State
	attempt int
	body    messages.Body
}

// of are events of one operation, and of one request or batch.
func of(op messages.Operation, id string, all []stated) (events []messages.Event) {
	request, _, _ := strings.Cut(strings.TrimSuffix(id, messages.Unmatched), ".")
	for _, one := range all {
		*one.body.Head() = messages.Common{RequestID: request, At: at(0), Attempt: one.attempt}
		events = append(events, messages.Event{Operation: op, State: one.state, ID: id, Body: one.body})
	}
	return events
}

// The requests of the examples.
const (
	signup  = "enroll-signup-4711"
	list    = "list-4711"
	news    = "send-news-2026-01"
	batch   = news + ".2"
	account = "account-2026-01-31"

	fingerprint = "4c4a2fac3a1f4f0f6f5a9d1e5a2f1b1c9b7f3e0d8c6a5b4e3d2c1b0a99887766"
)

var (
	records  = []json.RawMessage{json.RawMessage(`{"id":"TXN00000001","status":1,"mandate":{"order_number":"DD001"}}`)}
	approved = json.RawMessage(`{"id":"TXN00000001","transaction_type":"Application","status":3,"status_description":"Approved",` +
		`"mandate":{"order_number":"DD001","status":3,"status_description":"Approved"}}`)
	bounced = json.RawMessage(`{"id":"TXN00000002","transaction_type":"Deduction","status":2,"status_description":"Failed",` +
		`"mandate":{"order_number":"DD001","status":3,"status_description":"Approved"}}`)
	invalid  = []messages.InvalidAddress{{Address: "bob", Reason: "is not an email address"}}
	evidence = messages.BatchEvidence{Batch: 2, Count: 1000, Seen: 998}
)

// at is a time, in seconds after the time of the examples.
func at(seconds int) messages.Time {
	return messages.Time{Time: time.Date(2026, 1, 31, 8, 0, seconds, 0, time.UTC)}
}

func busy() messages.Body {
	return &messages.DeferredBody{Reason: messages.ReasonBusy, Message: "the service is busy", HTTPStatus: 503, NotBefore: at(60)}
}

func refused() messages.Body {
	return &messages.FailedBody{Reason: messages.ReasonRefused, Message: "Refused.", HTTPStatus: 422, Fingerprint: fingerprint}
}

func redriven() messages.Body {
	return &messages.ReopenedBody{By: "ann", Why: "the service is back", Was: messages.PriorOutcome{State: messages.Failed,
		Reason: messages.ReasonRefused}, Fingerprint: fingerprint}
}

func second(state messages.State, reason messages.Reason) []messages.Unsettled {
	return []messages.Unsettled{{Batch: 2, First: 1000, Count: 1000, State: state, Reason: reason}}
}

func row(reply string, smtp messages.SMTP) messages.Body {
	entry, _ := wire.Marshal(map[string]any{ // strings always encode
		"created_at": "2026-01-31T08:00:05.000000Z", "envelope_id": "19b77cfb4c0abcdef0", "from": "shop@example.com", "to": "ann@example.com",
		"status": map[string]any{"delivered": smtp.Code == 250, "response": reply},
	})
	return &messages.DeliveryBody{EventID: "9f2c4a2fac3a1f4f", Entry: entry, SMTP: smtp,
		Match: messages.Match{Confidence: messages.MatchExact, Batch: 2}, Recipient: "2.1700"}
}
