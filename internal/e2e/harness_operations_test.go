package e2e

import (
	"errand/internal/bus"
	"errand/internal/programs"
	"errand/pkg/messages"
)

// operation is one of the four kinds of requests, and the program that works on them.
type operation struct {
	messages.Operation
	program   string
	queue     bus.Queue
	call      string         // the sandbox's name for it
	succeeded messages.State // how a good request ends
	request   func(id string, more ...string) map[string]any
	read      *operation // of a write: the read of the same service
}

var (
	listOp    = &operation{messages.Transactions, "mandate-consumer", bus.TransactionsQueue, "transactions", messages.Listed, query, nil}
	accountOp = &operation{messages.Account, "mail-consumer", bus.AccountQueue, "account", messages.Reported, query, nil}
	enrollOp  = &operation{messages.Enroll, "mandate-consumer", bus.EnrollQueue, "enroll", messages.Succeeded, enrollment, listOp}
	sendOp    = &operation{messages.Send, "mail-consumer", bus.SendQueue, "send", messages.Accepted, toOne, accountOp}

	writes     = []*operation{enrollOp, sendOp}
	operations = []*operation{enrollOp, listOp, sendOp, accountOp}
)

// query is a valid request for a read.
func query(id string, more ...string) map[string]any {
	return having(map[string]any{"request_id": id}, more)
}

// toOne is a valid message to one recipient.
func toOne(id string, more ...string) map[string]any { return message(id, 1, more...) }

// events filters all events of the operation's requests, good those of the ones that ended well.
func (o *operation) events() string { return o.Filter("*") }
func (o *operation) good() string   { return o.Subject(o.succeeded, "*") }

// program is the one that works on an operation.
func (b *bubble) program(o *operation, concurrency int) programs.Program {
	if o.program == "mandate-consumer" {
		p := b.mandates()
		p.Concurrency = concurrency
		return p
	}
	p := b.mails()
	p.Concurrency = concurrency
	return p
}
