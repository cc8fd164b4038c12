package errand_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/pkg/errand"
	"errand/pkg/messages"
)

// Publish a message and wait for its outcome.
func Example() {
	ctx, url := demo()

	nc, err := nats.Connect(url, nats.MaxReconnects(-1))
	if err != nil {
		log.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		log.Fatal(err)
	}
	client := errand.New(js)
	receipt, err := client.Publish(ctx, messages.SendRequest{
		RequestID: "send-invoice-17", // the same for every repetition: nobody gets the mail twice
		To:        messages.Recipients("ann@example.com"),
		Subject:   "Invoice 17",
		Content:   "Dear Ann, …",
	})
	if err != nil {
		log.Fatal(err) // errand.ErrNoAck: nobody knows whether it is stored
	}
	if receipt.Duplicate {
		fmt.Println("it was published a moment ago")
	}
	outcome, err := client.Wait(ctx, receipt)
	if err != nil {
		log.Fatal(err)
	}
	switch o := outcome.(type) {
	case errand.Succeeded:
		fmt.Println("sent; invalid addresses:", o.LeftOut)
	case errand.Partial:
		fmt.Println("sent to", o.Accepted, "of", o.Recipients)
	case errand.Failed: // messages.ReasonConflict: the id was another's
		fmt.Println("not sent:", o.Reason, o.Message)
	case errand.Uncertain:
		fmt.Println("nobody knows yet; Outcomes reports it once it is found out")
	case errand.Resolved:
		fmt.Println("it was found out:", o.Became)
	}
	// Output: sent; invalid addresses: 0
}

// What breaks a rule is not published.
func ExampleClient_Publish() {
	ctx, client := connected()
	_, err := client.Publish(ctx, messages.EnrollRequest{RequestID: "enroll-signup-4711", OnUnknown: "again"})
	if invalid, ok := errors.AsType[*messages.Invalid](err); ok {
		fmt.Println(invalid.Fields["on_unknown"], invalid.Fields["order_number"])
	}
	// Output: [must be report or retry] [is required]
}

// A list is published in one wait. Each request has a receipt and an error.
func ExampleClient_PublishAll() {
	ctx, client := connected()
	var reminders []messages.Request
	for _, invoice := range []string{"20", "21", "22"} {
		reminders = append(reminders, messages.SendRequest{RequestID: "remind-invoice-" + invoice,
			To: messages.Recipients("dan@example.com"), Subject: "Invoice " + invoice, Content: "…"})
	}
	receipts, errs := client.PublishAll(ctx, reminders...)
	fmt.Println(len(receipts), errors.Join(errs...))
	// Output: 3 <nil>
}

// Who got no mail, by the places in the request's own list.
func ExamplePartial() {
	request := messages.SendRequest{To: messages.Recipients("nobody", "ann@example.com", "ann@example.com", "bob@example.com")}
	o := errand.Partial{Event: errand.Event{Operation: messages.Send, State: messages.Partial, Data: []byte(`{
		"recipients": 2, "accepted": 1, "invalid_count": 1, "invalid": [{"address": "nobody", "reason": "is not an email address"}],
		"unsettled": [{"batch": 2, "first": 1, "count": 1, "state": "refused", "reason": "refused"}]}`)}, LeftOut: 1}
	var body messages.SendOutcome
	if err := o.Decode(&body); err != nil {
		log.Fatal(err)
	}
	unsent, err := body.Unsent(request.Addresses())
	if err != nil {
		log.Fatal(err)
	}
	for _, u := range unsent {
		fmt.Println(u.Index, u.Address, u.State, u.Reason)
	}
	// Output:
	// 0 nobody failed invalid_request
	// 3 bob@example.com refused refused
}

// The link for the payer is in an enrollment's outcome.
func ExampleSucceeded_Link() {
	o := errand.Succeeded{Event: errand.Event{Operation: messages.Enroll, State: messages.Succeeded,
		Data: []byte(`{"order_number":"DD001","enrollment":{"url":"https://pay.example/enroll/1","order_number":"DD001"}}`)}}
	if link, ok := o.Link(); ok {
		fmt.Println("the payer goes on at", link)
	}
	// Output: the payer goes on at https://pay.example/enroll/1
}

// All events of a request, until its outcome.
func ExampleClient_Follow() {
	ctx, client := connected()
	receipt, err := client.Publish(ctx, messages.SendRequest{RequestID: "send-invoice-18", To: messages.Recipients("bob@example.com"),
		Subject: "Invoice 18", Content: "…"})
	if err != nil {
		log.Fatal(err)
	}
	for e, err := range client.Follow(ctx, receipt) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(e.Subject)
		if e.Final() {
			break
		}
	}
	// Output:
	// mail.send.started.send-invoice-18
	// mail.send.accepted.send-invoice-18
}

// The outcomes of all messages, for as long as the process runs and while it does not.
func ExampleClient_Outcomes() {
	ctx, client := connected()
	outcomes, err := client.Outcomes(ctx, "billing", messages.Send, time.Time{})
	if err != nil {
		log.Fatal(err)
	}
	invoice := messages.SendRequest{RequestID: "send-invoice-19", To: messages.Recipients("cem@example.com"),
		Subject: "Invoice 19", Content: "…"}
	if _, err := client.Publish(ctx, invoice); err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(ctx)
	err = outcomes.Run(ctx, func(_ context.Context, o errand.Outcome) error {
		var body messages.SendOutcome
		if err := o.About().Decode(&body); err != nil {
			return err // it comes again
		}
		fmt.Println(o.About().RequestID, body.Accepted, "of", body.Recipients)
		stop()
		return nil
	})
	fmt.Println(err)
	// Output:
	// send-invoice-19 1 of 1
	// <nil>
}
