package consumer

import (
	"time"

	"errand/pkg/messages"
)

// Enrollments are the requests of mandate.enroll.
func Enrollments(handle Handler[messages.EnrollRequest]) Operation[messages.EnrollRequest] {
	return Operation[messages.EnrollRequest]{Name: messages.Enroll, Decode: messages.DecodeEnroll, Handle: handle,
		GiveUpAt: func(r messages.EnrollRequest) time.Time { return r.GiveUpAt },
		Ended: func(r messages.EnrollRequest, s messages.State, b messages.FailedBody) messages.Body {
			if s == messages.Uncertain {
				return &messages.EnrollUncertain{Reason: b.Reason, Message: b.Message, OrderNumber: r.OrderNumber,
					Fingerprint: b.Fingerprint, AfterUnknown: true}
			}
			b.OrderNumber = r.OrderNumber
			return &b
		}}
}

// Sends are the requests of mail.send.
func Sends(handle Handler[messages.SendRequest]) Operation[messages.SendRequest] {
	return Operation[messages.SendRequest]{Name: messages.Send, Decode: messages.DecodeSend, Handle: handle,
		GiveUpAt: func(r messages.SendRequest) time.Time { return r.GiveUpAt },
		Ended: func(_ messages.SendRequest, s messages.State, b messages.FailedBody) messages.Body {
			return &messages.SendOutcome{Reason: b.Reason, Message: b.Message, Fields: b.Fields,
				Fingerprint: b.Fingerprint, ConflictsWith: b.ConflictsWith, AfterUnknown: s == messages.Uncertain}
		}}
}

// Listings are the requests of mandate.transactions.
func Listings(handle Handler[messages.TransactionsRequest]) Operation[messages.TransactionsRequest] {
	return read(messages.Transactions, messages.DecodeTransactions, handle)
}

// Accounts are the requests of mail.account.
func Accounts(handle Handler[messages.AccountRequest]) Operation[messages.AccountRequest] {
	return read(messages.Account, messages.DecodeAccount, handle)
}

// read is an operation that changes nothing upstream: its requests have no give_up_at, and never end uncertain.
func read[R any](name messages.Operation, decode func([]byte) (R, messages.Meta, error), handle Handler[R]) Operation[R] {
	return Operation[R]{Name: name, Decode: decode, Handle: handle,
		GiveUpAt: func(R) time.Time { return time.Time{} },
		Ended:    func(_ R, _ messages.State, b messages.FailedBody) messages.Body { return &b }}
}
