package messages_test

import (
	"encoding/json"
	"fmt"
	"time"

	"errand/pkg/messages"
)

func ExampleEnrollRequest() {
	request := messages.EnrollRequest{
		RequestID: "enroll-signup-4711",
		OnUnknown: messages.OnUnknownReport,
		Enrollment: messages.Enrollment{
			OrderNumber: "DD001", Amount: "100.50", PayerIDType: "1", PayerID: messages.Digits("900101011234"),
			PayerName: "Ann Tester", PayerEmail: "ann@example.com", PayerTelephoneNumber: messages.Digits("0123456789"),
			FrequencyMode: "MT", ApplicationReason: "Membership",
		},
	}
	body, err := json.Marshal(request)
	fmt.Println(messages.Enroll.Requested())
	fmt.Println(string(body), err)
	// Output:
	// mandate.enroll.requested
	// {"request_id":"enroll-signup-4711","on_unknown":"report","order_number":"DD001","amount":100.50,"payer_id_type":1,"payer_id":"900101011234","payer_name":"Ann Tester","payer_email":"ann@example.com","payer_telephone_number":"0123456789","frequency_mode":"MT","application_reason":"Membership"} <nil>
}

func ExampleTransactionsRequest() {
	body, err := json.Marshal(messages.TransactionsRequest{RequestID: "list-4711", OrderNumber: "DD001", MaxPages: 2})
	fmt.Println(messages.Transactions.Requested())
	fmt.Println(string(body), err)
	// Output:
	// mandate.transactions.requested
	// {"request_id":"list-4711","order_number":"DD001","max_pages":2} <nil>
}

func ExampleSendRequest() {
	body, err := json.Marshal(messages.SendRequest{
		RequestID: "send-invoice-17",
		GiveUpAt:  time.Date(2026, 2, 1, 12, 0, 0, 0, time.FixedZone("", 8*60*60)),
		To:        messages.Recipients("ann@example.com", `"Tester, Bob" <bob@example.com>`),
		Subject:   "Invoice 17",
		Content:   "Dear customer, …",
	})
	fmt.Println(messages.Send.Requested())
	fmt.Println(string(body), err)
	// Output:
	// mail.send.requested
	// {"request_id":"send-invoice-17","give_up_at":"2026-02-01T04:00:00Z","subject":"Invoice 17","content":"Dear customer, …","to":["ann@example.com","\"Tester, Bob\" \u003cbob@example.com\u003e"]} <nil>
}

// A list that is too long for one message is put into an object store first.
func ExampleSendRequest_toObject() {
	body, err := json.Marshal(messages.SendRequest{
		RequestID: "send-news-2026-01",
		ToObject:  &messages.ObjectRef{Bucket: "lists", Name: "news-2026-01", Digest: "SHA-256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU="},
		Subject:   "News",
		Content:   "<p>Hello</p>",
		AsHTML:    1,
	})
	fmt.Println(string(body), err)
	// Output:
	// {"request_id":"send-news-2026-01","subject":"News","content":"\u003cp\u003eHello\u003c/p\u003e","as_html":1,"to_object":{"bucket":"lists","name":"news-2026-01","digest":"SHA-256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU="}} <nil>
}

func ExampleAccountRequest() {
	body, err := json.Marshal(messages.AccountRequest{})
	fmt.Println(messages.Account.Requested(), string(body), err)
	// Output: mail.account.requested {} <nil>
}

// What the consumer will refuse can be known before it is published.
func ExampleDecode() {
	_, _, err := messages.Decode[messages.SendRequest]([]byte(`{"to":"ann@example.com","subjet":"Hello","content":"See you."}`))
	fmt.Println(err)
	// Output: invalid request: subject is required; subjet is not a known field
}

// mandate.enroll.succeeded.<id>
func ExampleEnrollSucceeded() {
	var e messages.EnrollSucceeded
	err := messages.DecodeEvent([]byte(`{"request_id":"enroll-signup-4711","at":"2026-01-31T08:00:00.000Z","attempt":1,"api_version":"v3",
		"order_number":"DD001","enrollment":{"url":"https://pay.example/enroll/1","order_number":"DD001","amount":100.5},"fingerprint":"4c4a2fac"}`), &e)
	var enrollment struct {
		URL string `json:"url"`
	}
	if err == nil {
		err = json.Unmarshal(e.Enrollment, &enrollment)
	}
	fmt.Println(e.RequestID, enrollment.URL, err)
	// Output: enroll-signup-4711 https://pay.example/enroll/1 <nil>
}

// mandate.enroll.failed.<id>, mandate.transactions.failed.<id> and mail.account.failed.<id>
func ExampleFailedBody() {
	var e messages.FailedBody
	err := messages.DecodeEvent([]byte(`{"request_id":"enroll-signup-4711","at":"2026-01-31T08:00:00.000Z","attempt":0,"reason":"invalid_request",
		"message":"invalid request: amount must have at most two decimals","http_status":0,
		"fields":{"amount":["must have at most two decimals"]},"fingerprint":"4c4a2fac"}`), &e)
	fmt.Println(e.RequestID, e.Reason == messages.ReasonInvalidRequest, e.Fields["amount"], err)
	// Output: enroll-signup-4711 true [must have at most two decimals] <nil>
}

// A request whose id was another's fails under <stream>-<sequence>, which is not the id
// that it asked for.
func ExampleFailedBody_conflict() {
	var e messages.FailedBody
	err := messages.DecodeEvent([]byte(`{"request_id":"MANDATE_REQUESTS-2","at":"2026-01-31T08:00:00.000Z","attempt":0,"reason":"conflict",
		"message":"another request with other contents has this request_id","http_status":0,"fields":{},"order_number":"DD002",
		"conflicts_with":"enroll-signup-4711","fingerprint":"c6ff7b9c"}`), &e)
	fmt.Println(e.RequestID, e.Reason, e.ConflictsWith, err)
	// Output: MANDATE_REQUESTS-2 conflict enroll-signup-4711 <nil>
}

// mandate.enroll.uncertain.<id>
func ExampleEnrollUncertain() {
	var e messages.EnrollUncertain
	err := messages.DecodeEvent([]byte(`{"request_id":"enroll-signup-4711","at":"2026-01-31T08:00:00.000Z","attempt":1,"reason":"link_lost",
		"message":"the order number is listed upstream, but the answer with the link never came","order_number":"DD001",
		"evidence":[{"order_number":"DD001","status":0}],"fingerprint":"4c4a2fac"}`), &e)
	fmt.Println(e.Reason, len(e.Evidence), err)
	// Output: link_lost 1 <nil>
}

// mandate.enroll.resolved.<id>
func ExampleEnrollResolved() {
	var e messages.EnrollResolved
	err := messages.DecodeEvent([]byte(`{"request_id":"enroll-signup-4711","at":"2026-02-01T08:00:00.000Z","attempt":1,"outcome":"failed",
		"by":"transaction_list","order_number":"DD001","evidence":[],"fingerprint":"4c4a2fac"}`), &e)
	fmt.Println(e.Outcome == messages.Failed, e.By, err)
	// Output: true transaction_list <nil>
}

// mandate.transactions.page.<id>, one or more, before mandate.transactions.listed.<id>
func ExampleTransactionsPage() {
	var e messages.TransactionsPage
	err := messages.DecodeEvent([]byte(`{"request_id":"list-4711","at":"2026-01-31T08:00:00.000Z","attempt":1,"page":1,
		"records":[{"id":"TXN00000001","order_number":"DD001"}],"total":1,"deadline":"2026-01-31T08:00:35.000Z","more":false,"fingerprint":"4c4a2fac"}`), &e)
	for _, raw := range e.Records {
		var record struct {
			ID string `json:"id"`
		}
		if err == nil {
			err = json.Unmarshal(raw, &record)
		}
		fmt.Println(e.Page, record.ID, err)
	}
	// Output: 1 TXN00000001 <nil>
}

// mandate.transactions.listed.<id>
func ExampleTransactionsListed() {
	var e messages.TransactionsListed
	err := messages.DecodeEvent([]byte(`{"request_id":"list-4711","at":"2026-01-31T08:00:00.000Z","attempt":1,"pages":1,"total":1,"fingerprint":"4c4a2fac"}`), &e)
	fmt.Println(e.Pages, e.Total, err)
	// Output: 1 1 <nil>
}

// mail.send.accepted.<id>, mail.send.partial.<id>, mail.send.failed.<id> and
// mail.send.uncertain.<id>: the subject says which one it is.
func ExampleSendOutcome() {
	var e messages.SendOutcome
	subject, data := "mail.send.partial.send-news-2026-01", []byte(`{"request_id":"send-news-2026-01","at":"2026-01-31T08:00:00.000Z","attempt":3,
		"recipients":2500,"accepted":1500,"batches":3,"duplicates":4,"invalid_count":1,"invalid":[{"address":"bob","reason":"is not an email address"}],
		"unsettled":[{"batch":2,"first":1000,"count":1000,"state":"refused","reason":"refused","http_status":422,"message":"Refused."}],
		"unsettled_count":1,"fingerprint":"4c4a2fac"}`)
	err := messages.DecodeEvent(data, &e)
	switch messages.StateOf(subject) {
	case messages.Accepted:
		fmt.Println("all accepted", err)
	case messages.Partial:
		fmt.Println(e.Accepted, "of", e.Recipients, e.Unsettled[0].Reason, err)
	case messages.Failed:
		fmt.Println("none accepted:", e.Reason, e.Fields, err)
	case messages.Uncertain:
		fmt.Println("nobody knows; mail.send.resolved may follow", err)
	}
	// Output: 1500 of 2500 refused <nil>
}

// mail.send.resolved.<id>
func ExampleSendResolved() {
	var e messages.SendResolved
	err := messages.DecodeEvent([]byte(`{"request_id":"send-invoice-17","at":"2026-01-31T08:00:02.001Z","attempt":0,"outcome":"accepted",
		"by":"sending_log","evidence":{"complete_through":"2026-01-31T08:00:01.000Z","seen":3,"count":3,
		"batches":[{"batch":1,"count":3,"seen":3,"outcome":"accepted"}]},"fingerprint":"4c4a2fac"}`), &e)
	fmt.Println(e.Outcome, e.Evidence.Seen, e.Evidence.Count, err)
	// Output: accepted 3 3 <nil>
}

// mail.batch.accepted.<id>.<n>, mail.batch.refused.<id>.<n> and mail.batch.uncertain.<id>.<n>
func ExampleBatchBody() {
	var e messages.BatchBody
	err := messages.DecodeEvent([]byte(`{"request_id":"send-news-2026-01","at":"2026-01-31T08:00:00.000Z","attempt":1,"batch":2,"first":1000,
		"count":1000,"reason":"refused","http_status":422,"message":"Refused."}`), &e)
	fmt.Println(e.Batch, e.First, e.Count, e.Reason, err)
	// Output: 2 1000 1000 refused <nil>
}

// mail.account.reported.<id>
func ExampleAccountReported() {
	var e messages.AccountReported
	err := messages.DecodeEvent([]byte(`{"request_id":"MAIL_REQUESTS-3","at":"2026-01-31T08:00:00.000Z","attempt":1,
		"account":{"organisation":"Shop","suspended":false,"credit_balance":250},"fingerprint":"4c4a2fac"}`), &e)
	var account struct {
		Suspended     bool `json:"suspended"`
		CreditBalance int  `json:"credit_balance"`
	}
	if err == nil {
		err = json.Unmarshal(e.Account, &account)
	}
	fmt.Println(account.Suspended, account.CreditBalance, err)
	// Output: false 250 <nil>
}

func ExampleErasedBody() {
	var e messages.ErasedBody
	err := messages.DecodeEvent([]byte(`{"request_id":"enroll-1","at":"2026-01-31T08:00:00.000Z","attempt":1,"was":{"state":"succeeded"}}`), &e)
	fmt.Println(e.Was.State, err)
	// Output: succeeded <nil>
}
