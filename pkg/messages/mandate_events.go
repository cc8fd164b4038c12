package messages

import "encoding/json"

// EnrollStarted is the body of mandate.enroll.started: a call is about to be
// made, and its fate is known by the deadline or never.
type EnrollStarted struct {
	Common
	Deadline    Time   `json:"deadline"`
	Fingerprint string `json:"fingerprint"`
	OrderNumber string `json:"order_number"`
	Defaults
	AfterUnknown bool `json:"after_unknown,omitempty"`
}

// Defaults are the values of fields the request left out: computed for each call
// and published in that call's started, so that no call after a long outage has a
// date that has passed. They are in the event beside its other fields; one the
// request gave is left out. An omitted link_expired_at has no default here: the
// call leaves it out too, and the service sets its own.
type Defaults struct {
	MaxFrequency  json.Number `json:"max_frequency,omitempty"`
	EffectiveDate string      `json:"effective_date,omitempty"` // 2006-01-02
	// ReturnURL is where the service sends callbacks; the first call's for all calls of a request.
	ReturnURL string `json:"return_url,omitempty"`
}

// EnrollSucceeded is the body of mandate.enroll.succeeded.
type EnrollSucceeded struct {
	Common
	APIVersion  string `json:"api_version"` // v2 or v3
	OrderNumber string `json:"order_number"`
	// Enrollment is the enrollment response of the e-mandate document, whole.
	Enrollment json.RawMessage `json:"enrollment"`
	// LinkExpiredAt is the request's, in the service's time zone; "": it named none, and
	// the link expires an hour after it was made.
	LinkExpiredAt string `json:"link_expired_at,omitempty"`
	AfterUnknown  bool   `json:"after_unknown,omitempty"`
	Fingerprint   string `json:"fingerprint"`
}

// EnrollUncertain is the body of mandate.enroll.uncertain: a call was made and
// what came of it is not known.
type EnrollUncertain struct {
	Common
	Reason      Reason `json:"reason"`
	Message     string `json:"message"`
	OrderNumber string `json:"order_number"`
	// Evidence holds the transaction records listed under the order number;
	// written as [] when there are none.
	Evidence     []json.RawMessage `json:"evidence"`
	Fingerprint  string            `json:"fingerprint"`
	AfterUnknown bool              `json:"after_unknown,omitempty"`
}

// MarshalJSON cuts the texts and writes nil evidence as [].
func (b EnrollUncertain) MarshalJSON() ([]byte, error) {
	type plain EnrollUncertain
	b.Message, b.OrderNumber = Cut(b.Message), Cut(b.OrderNumber)
	b.Evidence = listed(b.Evidence)
	return marshal(plain(b))
}

// TransactionsPage is the body of mandate.transactions.page. The pages of a request
// are published in order, each once: a listing that was interrupted or deferred
// goes on with the page after the last one.
type TransactionsPage struct {
	Common
	Page int `json:"page"` // from 1
	// Records are the transaction records of the e-mandate document, fields
	// that are not in it kept.
	Records []json.RawMessage `json:"records"`
	// Total is how many records the pages up to this one have together.
	Total int `json:"total"`
	// Deadline is until when the worker that published the page goes on with the next;
	// until then every other worker waits.
	Deadline Time `json:"deadline"`
	// More: another page follows.
	More bool `json:"more"`
	// Fingerprint is the request's: pages of other contents are not continued.
	Fingerprint string `json:"fingerprint"`
}

// MarshalJSON writes nil records as [].
func (b TransactionsPage) MarshalJSON() ([]byte, error) {
	type plain TransactionsPage
	b.Records = listed(b.Records)
	return marshal(plain(b))
}

// TransactionsListed is the body of mandate.transactions.listed.
type TransactionsListed struct {
	Common
	Pages       int    `json:"pages"`
	Total       int    `json:"total"` // records in all pages together
	Fingerprint string `json:"fingerprint"`
}
