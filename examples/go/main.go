// Command invoice sends one invoice by mail and says what became of it, as a service in
// another repository does it. Its module has errand by a replace line in go.mod.
//
//	invoice ID ADDRESS [SUBJECT]
//
// NATS_URL, NATS_USER and NATS_PASSWORD say how to reach NATS.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/pkg/errand"
	"errand/pkg/messages"
)

func main() { os.Exit(run(os.Args[1:])) }

// run returns the exit status: 0 sent, 1 not sent, 2 wrong arguments, 3 nobody knows.
func run(args []string) int {
	if len(args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: invoice ID ADDRESS [SUBJECT]")
		return 2
	}
	subject := "Your invoice"
	if len(args) > 2 {
		subject = args[2]
	}
	sent, err := send(args[0], args[1], subject)
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		return 1
	case !sent:
		return 3
	}
	return 0
}

// send reports whether the mail was sent; the error says why not.
func send(id, address, subject string) (sent bool, err error) {
	user := os.Getenv("NATS_USER")
	nc, err := nats.Connect(cmp.Or(os.Getenv("NATS_URL"), nats.DefaultURL), nats.UserInfo(user, os.Getenv("NATS_PASSWORD")),
		nats.CustomInboxPrefix("_INBOX_"+user), nats.MaxReconnects(-1))
	if err != nil {
		return false, err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return false, err
	}
	client := errand.New(js)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	receipt, err := client.Publish(ctx, messages.SendRequest{
		RequestID: id, // belongs to what is done: published twice, it is sent once
		To:        messages.Recipients(address),
		Subject:   subject,
		Content:   "Dear customer, …",
	})
	if errors.Is(err, errand.ErrNoAck) { // it was published again for a minute, and may be stored
		return false, fmt.Errorf("try again later, with the same id: %w", err)
	}
	if err != nil {
		return false, err
	}
	if receipt.Duplicate {
		fmt.Println("duplicate: it was published a moment ago")
	}
	outcome, err := client.Wait(ctx, receipt)
	if err != nil {
		return false, err // it goes on; wait again with the same receipt
	}
	switch o := outcome.(type) {
	case errand.Resolved: // of a message: it was sent after all
		fmt.Println("found out:", o.Became)
		return o.Became == messages.Accepted, nil
	case errand.Succeeded:
		fmt.Println("sent")
		return true, nil
	case errand.Failed:
		if o.Reason == messages.ReasonConflict {
			return false, fmt.Errorf("conflict: %s was published with other contents", o.ConflictsWith)
		}
		return false, fmt.Errorf("failed: %s: %s", o.Reason, o.Message)
	case errand.Partial: // one recipient is accepted or not: this is for lists
		fmt.Println("partial:", o.Accepted, "of", o.Recipients)
	case errand.Uncertain: // mail.send.resolved may follow: errand.Client.Outcomes reports it
		fmt.Println("uncertain: do not send it again under another id")
	}
	return false, nil
}
