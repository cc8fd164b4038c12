package messages

import (
	"encoding/json"

	"errand/internal/wire"
)

// TransactionBody is the body of mandate.application.<status> and mandate.deduction.<status>: a state of a record of the
// transaction list.
type TransactionBody struct {
	Common
	EventID       string           `json:"event_id"`
	Kind          TransactionKind  `json:"kind"`
	Status        string           `json:"status"`                   // as in the subject
	MandateStatus string           `json:"mandate_status,omitempty"` // of the mandate within the record
	OrderNumber   string           `json:"order_number"`             // of the mandate
	Match         TransactionMatch `json:"match"`
	By            TransactionBy    `json:"by"`
	Transaction   json.RawMessage  `json:"transaction"` // the record of the e-mandate document, fields that are not in it kept
}

// TransactionBy is how the state was found: always in the list.
type TransactionBy string

// The ways.
const (
	ByList     TransactionBy = "list"     // the list was read
	ByLookUp   TransactionBy = "look_up"  // the order number of an open enrollment was looked up
	ByCallback TransactionBy = "callback" // it was looked up because a callback named the request
)

// TransactionKind is what a record of the transaction list is about.
type TransactionKind string

// The kinds.
const (
	ApplicationKind TransactionKind = "application" // the payer's application for a mandate
	DeductionKind   TransactionKind = "deduction"   // one deduction under it
)

// TransactionMatch ties a record to the request that has its order number.
type TransactionMatch struct {
	Confidence Confidence `json:"confidence"`           // exact, ambiguous or none
	Candidates []string   `json:"candidates,omitempty"` // request ids, when ambiguous
}

// encoded cuts the order number.
func (b TransactionBody) encoded() ([]byte, error) {
	b.OrderNumber = wire.Cut(b.OrderNumber)
	return wire.Marshal(b)
}
