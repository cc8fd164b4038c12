package schema

import (
	"encoding/json"
	"strings"
	"time"

	"errand/pkg/messages"
)

// events are all that are published, in the order in which a request meets them, each with
// a body such as it has.
var events = []messages.Event{
	{Operation: messages.Enroll, State: messages.Started, ID: signup, Body: &messages.EnrollStarted{Common: common(signup, 1), Deadline: at(35), Fingerprint: fingerprint,
		OrderNumber: "DD001", Defaults: messages.Defaults{MaxFrequency: "9", EffectiveDate: "2026-02-01"}}},
	{Operation: messages.Enroll, State: messages.Deferred, ID: signup, Body: busy(signup)},
	{Operation: messages.Enroll, State: messages.Succeeded, ID: signup, Body: &messages.EnrollSucceeded{Common: common(signup, 1), APIVersion: "v3", OrderNumber: "DD001",
		Enrollment: json.RawMessage(`{"url":"https://pay.example/enroll/1","order_number":"DD001","amount":100.5}`), Fingerprint: fingerprint}},
	{Operation: messages.Enroll, State: messages.Failed, ID: signup, Body: &messages.FailedBody{Common: common(signup, 0), Reason: messages.ReasonInvalidRequest,
		Message: "invalid request: amount must have at most two decimals", Fields: map[string][]string{"amount": {"must have at most two decimals"}}, Fingerprint: fingerprint}},
	{Operation: messages.Enroll, State: messages.Uncertain, ID: signup, Body: &messages.EnrollUncertain{Common: common(signup, 1), Reason: messages.ReasonLinkLost,
		Message: "listed under its order number, and the answer with the link never came", OrderNumber: "DD001", Evidence: records, Fingerprint: fingerprint}},
	{Operation: messages.Enroll, State: messages.Resolved, ID: signup, Body: &messages.EnrollResolved{Common: common(signup, 1), Outcome: messages.Succeeded,
		By: messages.ByTransactionList, OrderNumber: "DD001", Evidence: records, Fingerprint: fingerprint}},
	{Operation: messages.Enroll, State: messages.Reopened, ID: signup, Body: &messages.ReopenedBody{Common: common(signup, 0), By: messages.ByCorrection,
		Was: messages.PriorOutcome{State: messages.Failed, Reason: messages.ReasonInvalidRequest}, Fingerprint: fingerprint}},
	{Operation: messages.Enroll, State: messages.Erased, ID: signup, Body: &messages.ErasedBody{Common: common(signup, 1), Was: &messages.PriorOutcome{State: messages.Succeeded}}},

	{Operation: messages.Transactions, State: messages.Page, ID: list, Body: &messages.TransactionsPage{Common: common(list, 1), Page: 1, Records: records, Total: 1,
		Deadline: at(35), Fingerprint: fingerprint}},
	{Operation: messages.Transactions, State: messages.Listed, ID: list, Body: &messages.TransactionsListed{Common: common(list, 1), Pages: 1, Total: 1, Fingerprint: fingerprint}},
	{Operation: messages.Transactions, State: messages.Failed, ID: list, Body: refused(list)},
	{Operation: messages.Transactions, State: messages.Erased, ID: list, Body: &messages.ErasedBody{Common: common(list, 1), Was: &messages.PriorOutcome{State: messages.Listed}}},

	{Operation: messages.Send, State: messages.Started, ID: news, Body: &messages.SendStarted{Common: common(news, 1), Deadline: at(35), Fingerprint: fingerprint,
		Recipients: 2500, Batches: 3, BatchSize: 1000}},
	{Operation: messages.Send, State: messages.Deferred, ID: news, Body: busy(news)},
	{Operation: messages.Send, State: messages.Accepted, ID: news, Body: &messages.SendOutcome{Common: common(news, 3), Recipients: 2500, Accepted: 2500, Batches: 3, Duplicates: 4,
		InvalidCount: 1, Invalid: invalid, Fingerprint: fingerprint}},
	{Operation: messages.Send, State: messages.Partial, ID: news, Body: &messages.SendOutcome{Common: common(news, 3), Recipients: 2500, Accepted: 1500, Batches: 3,
		Unsettled: second(messages.Refused, messages.ReasonRefused), UnsettledCount: 1, Fingerprint: fingerprint}},
	{Operation: messages.Send, State: messages.Failed, ID: news, Body: &messages.SendOutcome{Common: common(news, 0), Reason: messages.ReasonConflict,
		Message: "another request has this id", ConflictsWith: news, Fingerprint: fingerprint}},
	{Operation: messages.Send, State: messages.Uncertain, ID: news, Body: &messages.SendOutcome{Common: common(news, 3), Recipients: 2500, Accepted: 1500, Batches: 3,
		Unsettled: second(messages.Uncertain, messages.ReasonNoAnswer), UnsettledCount: 1, Reason: messages.ReasonNoAnswer, Message: "no answer to a batch", Fingerprint: fingerprint}},
	{Operation: messages.Send, State: messages.Resolved, ID: news, Body: &messages.SendResolved{Common: common(news, 3), Outcome: messages.Accepted, By: messages.BySendingLog,
		Evidence: messages.SendEvidence{CompleteThrough: at(3600), Seen: 998, Count: 1000, Batches: []messages.BatchEvidence{evidence}}, Fingerprint: fingerprint}},
	{Operation: messages.Send, State: messages.Reopened, ID: news, Body: &messages.ReopenedBody{Common: common(news, 3), By: "ann", Why: "the quota was raised",
		Was: messages.PriorOutcome{State: messages.Partial}, Batches: []int{2}, Fingerprint: fingerprint}},
	{Operation: messages.Send, State: messages.Erased, ID: news, Body: &messages.ErasedBody{Common: common(news, 3), Was: &messages.PriorOutcome{State: messages.Accepted}}},

	{Operation: messages.Batch, State: messages.Started, ID: batch, Body: &messages.BatchBody{Common: common(news, 2), Batch: 2, First: 1000, Count: 1000, Deadline: new(at(35))}},
	{Operation: messages.Batch, State: messages.Accepted, ID: batch, Body: &messages.BatchBody{Common: common(news, 2), Batch: 2, First: 1000, Count: 1000, Accepted: new(1000)}},
	{Operation: messages.Batch, State: messages.Refused, ID: batch, Body: &messages.BatchBody{Common: common(news, 2), Batch: 2, First: 1000, Count: 1000,
		Reason: messages.ReasonRefused, HTTPStatus: 422, Message: "Refused."}},
	{Operation: messages.Batch, State: messages.Deferred, ID: batch, Body: &messages.BatchBody{Common: common(news, 2), Batch: 2, First: 1000, Count: 1000,
		NotBefore: new(at(60)), Reason: messages.ReasonBusy, HTTPStatus: 503}},
	{Operation: messages.Batch, State: messages.Uncertain, ID: batch, Body: &messages.BatchBody{Common: common(news, 2), Batch: 2, First: 1000, Count: 1000,
		Reason: messages.ReasonNoAnswer, Message: "no answer within 30s"}},
	{Operation: messages.Batch, State: messages.Erased, ID: batch, Body: &messages.ErasedBody{Common: common(news, 2)}},

	{Operation: messages.Account, State: messages.Reported, ID: account, Body: &messages.AccountReported{Common: common(account, 1),
		Account: json.RawMessage(`{"organisation":"Shop","suspended":false,"limit_quota":"10000","credit_balance":9900}`), Fingerprint: fingerprint}},
	{Operation: messages.Account, State: messages.Failed, ID: account, Body: refused(account)},
	{Operation: messages.Account, State: messages.Erased, ID: account, Body: &messages.ErasedBody{Common: common(account, 1), Was: &messages.PriorOutcome{State: messages.Reported}}},

	{Operation: messages.Delivery, State: messages.Delivered, ID: news, Body: row("250 2.0.0 ok", messages.SMTP{Code: 250, Enhanced: "2.0.0"})},
	{Operation: messages.Delivery, State: messages.Deferred, ID: news, Body: row("451 4.7.1 later", messages.SMTP{Code: 451, Enhanced: "4.7.1"})},
	{Operation: messages.Delivery, State: messages.Bounced, ID: news, Body: row("550 5.1.1 no such user", messages.SMTP{Code: 550, Enhanced: "5.1.1"})},
	{Operation: messages.Delivery, State: messages.Unknown, ID: news, Body: row("", messages.SMTP{})},
	{Operation: messages.Delivery, State: messages.Summary, ID: news, Body: &messages.SummaryBody{Common: common(news, 3), Recipients: 2500, Accepted: 2500, Delivered: 2400,
		Deferred: 10, Bounced: 60, Queued: 30, CompleteThrough: at(3600)}},
	{Operation: messages.Delivery, State: messages.Overdue, ID: news, Body: &messages.OverdueBody{Common: common(news, 3), Batch: 2, Recipient: 1700, AcceptedAt: at(0), CompleteThrough: at(3600)}},
	{Operation: messages.Delivery, State: messages.Erased, ID: news, Body: &messages.ErasedBody{Common: common(news, 0), EventID: "9f2c4a2fac3a1f4f"}},

	{Operation: messages.Application, State: "approved", ID: signup, Body: &messages.TransactionBody{Common: common(signup, 0), EventID: "0f3c5a2fac3a1f4f9f2c4a2fac3a1f4f", Kind: messages.ApplicationKind,
		Status: "approved", MandateStatus: "approved", OrderNumber: "DD001", Match: messages.TransactionMatch{Confidence: messages.MatchExact}, By: messages.ByCallback, Transaction: approved}},
	{Operation: messages.Deduction, State: "failed", ID: messages.Unmatched, Body: &messages.TransactionBody{Common: common("", 0), EventID: "1e4c5a2fac3a1f4f9f2c4a2fac3a1f4f", Kind: messages.DeductionKind,
		Status: "failed", MandateStatus: "approved", OrderNumber: "DD001", Match: messages.TransactionMatch{Confidence: messages.MatchAmbiguous, Candidates: []string{signup, signup + "-2"}}, By: messages.ByList, Transaction: bounced}},
	{Operation: messages.Application, State: messages.Erased, ID: signup, Body: &messages.ErasedBody{Common: common(signup, 0), EventID: "0f3c5a2fac3a1f4f9f2c4a2fac3a1f4f"}},
	{Operation: messages.Deduction, State: messages.Erased, ID: signup, Body: &messages.ErasedBody{Common: common(signup, 0), EventID: "1e4c5a2fac3a1f4f9f2c4a2fac3a1f4f"}},
	{Operation: messages.Transactions, State: messages.Marked, Body: &messages.Watermark{Common: common("", 0), CompleteThrough: at(0), TotalRecord: 4000, New: 3,
		By: messages.ByWholeLog}},

	{Operation: messages.Callback, State: messages.Received, ID: signup, Body: &messages.CallbackBody{Common: common(signup, 0), Method: "POST", ContentType: "application/json",
		Body: `{"order_number":"DD001","status":"3"}`, Encoding: messages.CallbackText, Bytes: 37, Digest: strings.Repeat("5f", 32), Checksum: messages.ChecksumAbsent}},

	{Operation: messages.Log, State: messages.Marked, Body: &messages.Watermark{Common: common("", 0), CompleteThrough: at(0), TotalRecord: 120000, New: 12,
		By: messages.ByNewestFirst}},
	{Operation: messages.Log, State: messages.Sent, ID: batch, Body: sent()},
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
	approved = json.RawMessage(`{"id":"TXN00000001","transaction_type":"Application","status":3,"status_description":"Approved","mandate":{"order_number":"DD001","status":3,"status_description":"Approved"}}`)
	bounced  = json.RawMessage(`{"id":"TXN00000002","transaction_type":"Deduction","status":2,"status_description":"Failed","mandate":{"order_number":"DD001","status":3,"status_description":"Approved"}}`)
	invalid  = []messages.InvalidAddress{{Address: "bob", Reason: "is not an email address"}}
	evidence = messages.BatchEvidence{Batch: 2, Count: 1000, Seen: 998}
)

// at is a time in seconds after that of the examples.
func at(seconds int) messages.Time {
	return messages.Time{Time: time.Date(2026, 1, 31, 8, 0, seconds, 0, time.UTC)}
}

func common(request string, attempt int) messages.Common {
	return messages.Common{RequestID: request, At: at(0), Attempt: attempt}
}

func busy(request string) *messages.DeferredBody {
	return &messages.DeferredBody{Common: common(request, 5), Reason: messages.ReasonBusy, Message: "the service is busy", HTTPStatus: 503, NotBefore: at(60)}
}

func refused(request string) *messages.FailedBody {
	return &messages.FailedBody{Common: common(request, 1), Reason: messages.ReasonRefused, Message: "Refused.", HTTPStatus: 422, Fingerprint: fingerprint}
}

func second(state messages.State, reason messages.Reason) []messages.Unsettled {
	return []messages.Unsettled{{Batch: 2, First: 1000, Count: 1000, State: state, Reason: reason}}
}

func row(reply string, smtp messages.SMTP) *messages.DeliveryBody {
	entry, _ := marshal(map[string]any{ // strings always encode
		"created_at": "2026-01-31T08:00:05.000000Z", "envelope_id": "19b77cfb4c0abcdef0", "from": "shop@example.com", "to": "ann@example.com",
		"status": map[string]any{"delivered": smtp.Code == 250, "response": reply},
	})
	return &messages.DeliveryBody{Common: common(news, 2), EventID: "9f2c4a2fac3a1f4f", Entry: entry, SMTP: smtp, Match: messages.Match{Confidence: messages.MatchExact, Batch: 2}, Recipient: "2.1700"}
}

func sent() *messages.SentBody {
	b := &messages.SentBody{Common: common(news, 2), Batch: 2, Count: 1, Begin: at(0), Until: at(35)}
	b.SetKeys(nil, "shop@example.com", []string{"ann@example.com"})
	return b
}
