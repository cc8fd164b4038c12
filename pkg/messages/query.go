package messages

import (
	"encoding/json"
	"strconv"

	"errand/internal/wire"
)

// TransactionsRequest is the body of mandate.transactions.requested: the list's filters.
type TransactionsRequest struct {
	RequestID               string `json:"request_id,omitempty"`
	OrderNumber             string `json:"order_number,omitempty"`
	Status                  string `json:"status,omitempty"` // the code as text, whether it was a number or a string
	ExchangeReferenceNumber string `json:"exchange_reference_number,omitempty"`
	PayerEmail              string `json:"payer_email,omitempty"`
	MaxPages                int    `json:"max_pages,omitempty"` // 0: not given
}

var transactionsFields = []field[TransactionsRequest]{
	{"exchange_reference_number", optional, func(r *TransactionsRequest, v value) { r.ExchangeReferenceNumber = v.line() }},
	{"max_pages", optional, func(r *TransactionsRequest, v value) {
		r.MaxPages, _ = strconv.Atoi(string(v.whole('1', positive)))
	}},
	{"order_number", optional, func(r *TransactionsRequest, v value) { r.OrderNumber = v.orderNumber() }},
	{"payer_email", optional, func(r *TransactionsRequest, v value) { r.PayerEmail = v.email() }},
	{"request_id", optional, func(r *TransactionsRequest, v value) { r.RequestID = v.requestID() }},
	{"status", optional, func(r *TransactionsRequest, v value) { r.Status = v.status() }},
}

// status is a status code. The e-mandate document does not list them all, so
// any text will do.
func (v value) status() string {
	if v.kind == aNumber {
		return string(v.whole('0', "must be a whole number or a string"))
	}
	return v.line()
}

// AccountRequest is the body of mail.account.requested.
type AccountRequest struct {
	RequestID string `json:"request_id,omitempty"`
}

var accountFields = []field[AccountRequest]{
	{"request_id", optional, func(r *AccountRequest, v value) { r.RequestID = v.requestID() }},
}

// TransactionsPage is the body of mandate.transactions.page. Pages come in order, each once.
type TransactionsPage struct {
	Common
	Page        int               `json:"page"`        // from 1
	Records     []json.RawMessage `json:"records"`     // of the e-mandate document, fields that are not in it kept
	Total       int               `json:"total"`       // of the records, with those of the pages before
	Deadline    Time              `json:"deadline"`    // until when its worker goes on with the next, and every other one waits
	More        bool              `json:"more"`        // another page follows
	Fingerprint string            `json:"fingerprint"` // the request's: pages of other contents are not continued
}

// encoded writes nil records as [].
func (b TransactionsPage) encoded() ([]byte, error) {
	b.Records = listed(b.Records)
	return wire.Marshal(b)
}

// TransactionsListed is the body of mandate.transactions.listed.
type TransactionsListed struct {
	Common
	Pages       int    `json:"pages"`
	Total       int    `json:"total"` // records in all pages together
	Fingerprint string `json:"fingerprint"`
}

// AccountReported is the body of mail.account.reported.
type AccountReported struct {
	Common
	Account     json.RawMessage `json:"account"` // the account information of the email document, whole
	Fingerprint string          `json:"fingerprint"`
}
