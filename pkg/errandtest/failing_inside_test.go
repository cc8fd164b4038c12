package errandtest

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"errand/pkg/errand"
	"errand/pkg/messages"
)

// recorder is a test that is meant to fail.
type recorder struct {
	testing.TB
	said string
}

func (r *recorder) Errorf(format string, args ...any) { r.said += fmt.Sprintf(format, args...) }

func (r *recorder) Fatalf(format string, args ...any) {
	r.said = fmt.Sprintf(format, args...)
	panic(r)
}

// failure returns what f fails with, "" if it does not.
func (w *World) failure(f func()) (said string) {
	r := &recorder{TB: w.t}
	w.t = r
	defer func() {
		w.t, said = r.TB, r.said
		if p := recover(); p != nil && p != any(r) {
			panic(p)
		}
	}()
	f()
	return ""
}

// An event that never comes ends a test in a bubble after an hour, which takes seconds, and says what came instead.
func TestAWaitForWhatNeverComesEndsWithTheStory(t *testing.T) {
	began := time.Now()
	InBubble(t, func(t *testing.T, w *World) {
		receipt, err := w.Client.Publish(t.Context(), messages.SendRequest{RequestID: "first", To: messages.Recipients("ann@example.com"),
			Subject: "Hello", Content: "See you."})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		said := w.failure(func() { w.WantEvent("mail.delivery.bounced.first") })
		for _, want := range []string{"none came in 1h", "mail.send.accepted.first", "mail.delivery.delivered.first"} {
			if !strings.Contains(said, want) {
				t.Errorf("it lacks %q: %s", want, said)
			}
		}
		if took := time.Since(began); took > 2*time.Hour {
			t.Errorf("it took %v", took)
		}
		if said = w.failure(func() { w.WantOutcome(receipt, messages.Failed) }); !strings.Contains(said, "first is accepted, want failed") {
			t.Errorf("it says %s", said)
		}
	})
	t.Logf("it took %v", time.Since(began))
}

// An address is the same in every spelling, and an order number in every case: else WantNone would pass for what was done.
func TestWhatWasDoneIsFoundInEverySpelling(t *testing.T) {
	t.Parallel()
	w := New(t)
	w.WantOutcome(w.published(messages.SendRequest{To: messages.Recipients("ann@example.com", "Bob@bücher.example")}), messages.Accepted)
	w.WantOutcome(w.published(messages.EnrollRequest{Enrollment: messages.Enrollment{OrderNumber: "DD001"}}), messages.Succeeded)
	for _, address := range []string{"ann@example.com", "Ann@Example.COM", "Ann <ann@example.com>", "bob@xn--bcher-kva.example"} {
		if w.failure(func() { w.Mail.WantNone(address) }) == "" {
			t.Errorf("%s got no mail", address)
		}
		w.Mail.WantOnce(address)
	}
	for _, order := range []string{"DD001", "dd 001"} {
		if w.failure(func() { w.Mandate.WantNone(order) }) == "" {
			t.Errorf("%s was not enrolled", order)
		}
		w.Mandate.WantOnce(order)
	}
	w.Mail.WantNone("cem@example.com")
	w.Mandate.WantNone("DD002")
	for what, f := range map[string]func(){"WantNone": func() { w.Mail.WantNone("ann") }, "WantOnce": func() { w.Mail.WantOnce("") },
		"Bounce": func() { w.Bounce("ann", 550) }, "WantSuppressed": func() { w.WantSuppressed("ann") }} {
		if said := w.failure(f); !strings.Contains(said, "is not an email address") {
			t.Errorf("%s of what is not an address: %q", what, said)
		}
	}
	if said := w.failure(func() { w.Mail.WantOnce("cem@example.com") }); !strings.Contains(said, "got no mail") {
		t.Errorf("%s", said)
	}
}

func TestAStateOnTheWayIsNotAnOutcome(t *testing.T) {
	t.Parallel()
	w := New(t)
	r := errand.Receipt{Operation: messages.Send, RequestID: "r1"}
	for state, want := range map[messages.State]string{messages.Deferred: "WantEvent waits for mail.send.deferred.r1",
		messages.Succeeded: "no mail.send ends as \"succeeded\""} {
		if said := w.failure(func() { w.WantOutcome(r, state) }); !strings.Contains(said, want) {
			t.Errorf("%s: %q", state, said)
		}
	}
}

// When functions of t.Cleanup run, the test's context has ended.
func TestACleanupMayStillWait(t *testing.T) {
	t.Parallel()
	w := New(t, SuppressBounced)
	w.Bounce("Bob <BOB@example.com>", 550)
	t.Cleanup(func() {
		w.WantOutcome(w.published(messages.SendRequest{RequestID: "last", To: messages.Recipients("bob@example.com")}), messages.Accepted)
		w.WantEvent("mail.delivery.bounced.last")
		w.WantSuppressed("bob@example.com")
	})
}

// An amount is a number, however it is written.
func TestFaultsMeetTheRequestsTheyAreFor(t *testing.T) {
	t.Parallel()
	w := New(t)
	w.Mandate.For("100.50").Answer(422)
	w.Mandate.For("Ann & Bob").Answer(422)
	for order, c := range map[string]struct {
		name   string
		amount json.Number
		want   messages.State
	}{"DD001": {"Ann", "100.49", messages.Succeeded}, "DD002": {"Ann", "100.50", messages.Failed},
		"DD003": {"Ann & Bob", "100.49", messages.Failed}} {
		w.WantOutcome(w.published(messages.EnrollRequest{Enrollment: messages.Enrollment{OrderNumber: order, Amount: c.amount,
			PayerName: c.name}}), c.want)
	}
}

// published publishes a request, with what it does not say.
func (w *World) published(r messages.Request) errand.Receipt {
	w.t.Helper()
	switch full := r.(type) {
	case messages.SendRequest:
		full.Subject, full.Content = "Hello", "See you."
		r = full
	case messages.EnrollRequest:
		e := &full.Enrollment
		e.PayerIDType, e.PayerID, e.PayerEmail, e.FrequencyMode = "1", messages.Digits("900101011234"), "ann@example.com", "MT"
		e.PayerTelephoneNumber, e.ApplicationReason = messages.Digits("0123456789"), "Membership"
		e.Amount, e.PayerName = cmp.Or(e.Amount, "100.50"), cmp.Or(e.PayerName, "Ann Tester")
		r = full
	}
	receipt, err := w.Client.Publish(context.WithoutCancel(w.t.Context()), r)
	if err != nil {
		w.t.Fatal(err)
	}
	return receipt
}
