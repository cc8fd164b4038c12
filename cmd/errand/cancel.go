package main

import (
	"context"
	"fmt"

	"errand/internal/oncall/act"
	"errand/pkg/messages"
)

type cancel struct {
	acting
	Operation string `name:"op" placeholder:"OPERATION" help:"Its operation, if several have the id: enroll, transactions, send, account."`
	ID        string `arg:"" name:"id" help:"The request id."`
}

func (*cancel) Help() string {
	return `Ends a request as failed with the reason cancelled, if it waits in its queue or is deferred and no call had
an effect. Its message stays in the queue until a program takes it, and that program makes no call.

Cancelling is refused if a call is under way or may have had an effect, if the request has an outcome, and if the id
was never seen: that would block the id. errand dead redrive --force runs a cancelled request after all; the same id
with other contents corrects it.

Examples:

    errand cancel enroll-signup-4711 --why 'the customer withdrew'
    errand cancel MAIL_REQUESTS-4711 --why 'wrong list'    # a request that was published without an id`
}

func (k *cancel) Run(ctx context.Context, c console) error {
	if !messages.IsID(k.ID) {
		return invalid("ID", "must be a request id: up to 64 letters, digits, - and _, got %q", k.ID)
	}
	op := messages.Operation("")
	if k.Operation != "" {
		named, err := operationsOf("--op", []string{k.Operation})
		if err != nil {
			return err
		}
		op = named[0]
	}
	return k.do(ctx, "cancel", c, func(person act.Person) error {
		op, err := person.Requests().Cancel(ctx, op, k.ID, k.Why)
		if err == nil {
			fmt.Fprintf(c.out, "%s  %s is cancelled\n", op, k.ID)
		}
		return err
	})
}
