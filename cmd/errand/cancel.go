package main

import (
	"context"
	"fmt"

	"errand/internal/programs"
	"errand/pkg/messages"
)

// cancel ends a request before any call was made.
type cancel struct {
	acting
	Operation string `name:"op" placeholder:"OPERATION" help:"Its operation, where requests of several have the id: enroll, transactions, send, account."`
	ID        string `arg:"" name:"id" help:"The request id."`
}

// Help is shown by --help in addition to the flags.
func (*cancel) Help() string {
	return `Ends a request as failed for the reason cancelled: one that waits in its queue, or is deferred with nothing done. Its message stays in the queue until a program meets it, which then makes no call.

It is refused, with what is in the way, when a call is under way or may have had an effect, when the request has its outcome, and when nobody has seen the id: to cancel that would block it. errand dead redrive --force runs a cancelled request after all; the same id with other contents corrects it.

Examples:

    errand cancel enroll-signup-4711 --why 'the customer withdrew'
    errand cancel MAIL_REQUESTS-4711 --why 'wrong list'    # a request without an id of its own`
}

// Run cancels.
func (k *cancel) Run(ctx context.Context) error { return k.run(ctx, standard()) }

func (k *cancel) run(ctx context.Context, c console) error {
	if !messages.IsID(k.ID) {
		return &programs.Invalid{Variable: "ID", Problem: fmt.Sprintf("%q can be no request id: those are up to 64 letters, digits, - and _", k.ID)}
	}
	op := messages.Operation("")
	if k.Operation != "" {
		named, err := operationsOf("--op", []string{k.Operation})
		if err != nil {
			return err
		}
		op = named[0]
	}
	b, person, err := k.open(ctx, "cancel", c)
	if err != nil {
		return err
	}
	defer b.nc.Close()
	if op, err = person.Requests().Cancel(ctx, op, k.ID, k.Why); err != nil {
		return b.unanswered(err)
	}
	fmt.Fprintf(c.out, "%s  %s is cancelled\n", op, k.ID)
	return nil
}
