package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"errand/internal/sandbox"
	"errand/pkg/errand"
	"errand/pkg/messages"
)

// typed is a body of message or enrollment as a request of pkg/messages.
func typed[R messages.Request](t *testing.T, body map[string]any) (r R) {
	t.Helper()
	data, err := json.Marshal(body)
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	must(t, err)
	return r
}

// ask publishes a request and waits for its outcome.
func ask(t *testing.T, c *errand.Client, r messages.Request) (errand.Receipt, errand.Outcome) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	receipt, err := c.Publish(ctx, r)
	if err != nil {
		t.Fatalf("%s: %v", r.Operation(), err)
	}
	outcome, err := c.Wait(ctx, receipt)
	must(t, err)
	return receipt, outcome
}

// Services, producers, readers and people publish and read by the client, each with no more
// rights than the shipped configuration gives.
func TestTheClientNeedsOnlyTheShippedRights(t *testing.T) {
	in := install(t, "MAIL_BATCH_SIZE=2")
	in.fault(sandbox.Fault{Operation: "send", Kind: sandbox.Status, Status: 422, Match: "story refused"})
	in.fault(sandbox.Fault{Operation: "send", Kind: sandbox.Status, Status: 422, Match: "half-2@"})
	in.fault(sandbox.Fault{Operation: "send", Kind: sandbox.AcceptCut, Match: "story doubtful"})
	in.start("mail-consumer")
	in.start("mandate-consumer")
	pnc, _ := connectAs(t, in.nats.URL, "provisioner")
	serviceJS, readerJS := in.reader(pnc, "service"), in.reader(pnc, "subscriber")
	_, annJS := connectAs(t, in.nats.URL, "ann")
	service, reader, ann, producer := errand.New(serviceJS), errand.New(readerJS), errand.New(annJS), errand.New(in.producer)
	outcomes, err := reader.Outcomes(t.Context(), "archive", messages.Send, time.Time{})
	must(t, err)

	// Each outcome once.
	for id, want := range map[string]string{"fine": "errand.Succeeded", "refused": "errand.Failed", "half": "errand.Partial", "doubtful": "errand.Uncertain"} {
		if _, o := ask(t, service, typed[messages.SendRequest](t, message(id, 4))); fmt.Sprintf("%T", o) != want {
			t.Errorf("%s: got %+v, want %s", id, o, want)
		}
	}
	fine := typed[messages.SendRequest](t, message("fine", 4))
	if receipt, o := ask(t, service, fine); !receipt.Duplicate || o.About().Subject != "mail.send.accepted.fine" {
		t.Errorf("the same again: %+v %+v", receipt, o)
	}
	fine.Subject = "something else"
	if receipt, o := ask(t, service, fine); o.About().RequestID != receipt.Position() || o.(errand.Failed).ConflictsWith != "fine" {
		t.Errorf("other contents under the same id: %+v %+v", receipt, o)
	}
	corrected := typed[messages.SendRequest](t, message("refused", 4))
	corrected.Subject = "corrected"
	_, o := ask(t, service, corrected)
	if s, ok := o.(errand.Succeeded); !ok || s.Subject != "mail.send.accepted.refused" {
		t.Errorf("a correction: %+v", o)
	}
	_, o = ask(t, service, typed[messages.EnrollRequest](t, enrollment("signup")))
	var enrolled messages.EnrollSucceeded
	if err := o.About().Decode(&enrolled); err != nil || !strings.Contains(string(enrolled.Enrollment), `"url"`) {
		t.Errorf("an enrollment: %+v, %v", o, err)
	}
	for _, r := range []messages.Request{messages.TransactionsRequest{OrderNumber: "order-signup"}, messages.AccountRequest{}} {
		if receipt, o := ask(t, service, r); o.About().State.Final(r.Operation()) && receipt.RequestID != receipt.Position() {
			t.Errorf("%s: %+v", r.Operation(), o)
		}
	}

	// A producer only publishes; a reader with the receipt learns the rest, and so does a person.
	receipt, err := producer.Publish(t.Context(), typed[messages.SendRequest](t, message("produced", 3)))
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if _, err := producer.Wait(ctx, receipt); !errors.Is(err, errand.ErrNoEvents) {
		t.Errorf("a producer reads: %v", err)
	}
	for who, c := range map[string]*errand.Client{"reader": reader, "ann": ann} {
		if o, err := c.Wait(ctx, receipt); err != nil || o.About().Subject != "mail.send.accepted.produced" {
			t.Errorf("%s: %v, %v", who, o, err)
		}
	}
	if _, err := reader.Publish(t.Context(), messages.AccountRequest{}); !errors.Is(err, errand.ErrNotTaken) {
		t.Errorf("a reader publishes: %v", err)
	}
	var seen []string
	for e, err := range reader.Follow(ctx, receipt) {
		must(t, err)
		if seen = append(seen, e.Operation.Subject(e.State, "")); e.Final() {
			break
		}
	}
	if len(seen) < 6 || seen[0] != "mail.send.started" || !slices.Contains(seen, "mail.batch.accepted") {
		t.Errorf("the events of two batches are %q", seen)
	}
	if _, o := ask(t, ann, messages.AccountRequest{}); o.About().State != messages.Reported {
		t.Errorf("ann: %+v", o)
	}

	var all []string
	err = outcomes.Run(ctx, func(_ context.Context, o errand.Outcome) error {
		if all = append(all, fmt.Sprintf("%T", o)); len(all) == 7 {
			cancel()
		}
		return nil
	})
	slices.Sort(all)
	want := []string{"errand.Failed", "errand.Failed", "errand.Partial", "errand.Succeeded", "errand.Succeeded", "errand.Succeeded", "errand.Uncertain"}
	if err != nil || !slices.Equal(all, want) {
		t.Errorf("the outcomes are %q, %v, want %q", all, err, want)
	}
}
