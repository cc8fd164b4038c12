package main

import (
	"context"
	"fmt"
	"slices"

	"errand/internal/oncall/act"
	"errand/internal/oncall/inspect"
	"errand/pkg/messages"
)

// oneRequest is the request that a command acts on.
type oneRequest struct {
	acting
	Operation string `name:"op" placeholder:"OPERATION" help:"Its operation, if several have the id: enroll, transactions, send, account."`
	ID        string `arg:"" name:"id" help:"The request id."`
}

type cancel struct{ oneRequest }

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
	return k.act(ctx, "cancel", "is cancelled", c, act.Requests.Cancel)
}

// retryNow is the command retry.
type retryNow struct{ oneRequest }

func (*retryNow) Help() string {
	return `Runs a deferred request now instead of at its time (errand show says when that is): its wait is ended, and its
message is published once more. No call is made twice for it: one of unknown fate is looked up first, as always. If it
meets the same fault it is deferred again, at first for a short time.

It is refused where it would change nothing: if the request is not deferred, if its operation is held or its queue is
paused, and for a request that was published without an id.

Examples:

    errand retry enroll-signup-4711 --why 'the bank says that it is back'`
}

func (k *retryNow) Run(ctx context.Context, c console) error {
	return k.act(ctx, "retry", "runs now", c, act.Requests.Retry)
}

func (k *oneRequest) act(ctx context.Context, name, says string, c console,
	do func(r act.Requests, ctx context.Context, op messages.Operation, id, why string) (messages.Operation, error),
) error {
	if !inspect.IsID(k.ID) {
		return invalid("ID", "must be a request id: up to 64 letters, digits, - and _, got %q", k.ID)
	}
	ops, err := operationsOf("--op", slices.DeleteFunc([]string{k.Operation}, func(op string) bool { return op == "" }))
	if err != nil {
		return err
	}
	return k.do(ctx, name, c, true, func(person act.Person) error {
		op, err := do(person.Requests(), ctx, append(ops, "")[0], k.ID, k.Why)
		if err == nil {
			fmt.Fprintf(c.out, "%s  %s %s\n", op, k.ID, says)
		}
		return err
	})
}
