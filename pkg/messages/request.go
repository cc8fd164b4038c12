package messages

// Request is the body of a request: an EnrollRequest, a TransactionsRequest, a
// SendRequest or an AccountRequest. With json.Marshal it becomes what is published on
// Operation().Requested().
type Request interface {
	// Operation is what the request asks for.
	Operation() Operation
}

// Operation is Enroll.
func (EnrollRequest) Operation() Operation { return Enroll }

// Operation is Transactions.
func (TransactionsRequest) Operation() Operation { return Transactions }

// Operation is Send.
func (SendRequest) Operation() Operation { return Send }

// Operation is Account.
func (AccountRequest) Operation() Operation { return Account }

// Requests are the operations that can be requested.
var Requests = []Operation{Enroll, Transactions, Send, Account}

// Check reads the body of a request as the program that takes it does. The error is an
// *Invalid, that of an operation without requests too; Meta is what is known of the body
// nevertheless. It does not judge what the programs' configuration decides, such as
// how far ahead a give_up_at may be.
func Check(op Operation, data []byte) (Meta, error) {
	var meta Meta
	var err error
	switch op {
	case Enroll:
		_, meta, err = DecodeEnroll(data)
	case Transactions:
		_, meta, err = DecodeTransactions(data)
	case Send:
		_, meta, err = DecodeSend(data)
	case Account:
		_, meta, err = DecodeAccount(data)
	default:
		err = &Invalid{Fields: map[string][]string{"body": {"is of an operation that takes no requests"}}}
	}
	return meta, err
}
