package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"errand/pkg/errand"
	"errand/pkg/errandtest"
	"errand/pkg/messages"
)

func TestMain(m *testing.M) { errandtest.Main(m) } // for InBubble

func TestAPayerIsEnrolledOnceAndGetsTheLink(t *testing.T) {
	t.Parallel()
	w := errandtest.New(t)
	s := start(t, w)
	ann := url.Values{"name": {"Ann Tester"}, "email": {"ann@example.com"}, "phone": {"0123456789"}, "payer_id": {"900101011234"}}
	for range 2 { // a form is sent twice
		if status, body := s.post("DD001", ann); status != http.StatusAccepted {
			t.Fatalf("status %d: %s", status, body)
		}
	}
	w.WantOutcome(errand.Receipt{Operation: messages.Send, RequestID: "signup-link-DD001"}, messages.Accepted)
	w.Mandate.WantOnce("DD001")
	w.Mail.WantOnce("ann@example.com")
	s.until(t, "DD001", "sent")
}

func TestAFormWithAFaultNamesTheField(t *testing.T) {
	t.Parallel()
	s := start(t, errandtest.New(t))
	if status, body := s.post("DD001", url.Values{"email": {"nobody"}}); status != http.StatusUnprocessableEntity ||
		!strings.Contains(body, "payer_email") {
		t.Errorf("status %d: %s", status, body)
	}
}

// Three hours of a mandate service that is down pass in a moment, and nobody is written to until it is back.
func TestASignupOutlastsAnOutage(t *testing.T) {
	errandtest.InBubble(t, func(t *testing.T, w *errandtest.World) {
		s := start(t, w)
		w.Mandate.Always().Answer(503)
		s.post("DD001", url.Values{"name": {"Ann Tester"}, "email": {"ann@example.com"}, "phone": {"0123456789"}, "payer_id": {"1"}})
		w.Advance(3 * time.Hour)
		w.Mail.WantNone("ann@example.com")
		w.Mandate.Lift()
		w.WantEvent("mail.send.accepted.signup-link-DD001")
		w.Mandate.WantOnce("DD001")
		s.until(t, "DD001", "sent")
	})
}

func start(t *testing.T, w *errandtest.World) *service {
	s := &service{client: w.Client, signups: map[string]signup{}}
	var running sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	running.Go(func() {
		if err := s.listen(ctx); err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	t.Cleanup(func() { stop(); running.Wait() })
	return s
}

func (s *service) ask(r *http.Request) (status int, body string) {
	answer := httptest.NewRecorder()
	s.handler().ServeHTTP(answer, r)
	return answer.Code, answer.Body.String()
}

func (s *service) post(order string, form url.Values) (status int, body string) {
	r := httptest.NewRequest(http.MethodPost, "/signups/"+order, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return s.ask(r)
}

func (s *service) until(t *testing.T, order, want string) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); ; <-time.After(10 * time.Millisecond) {
		_, got := s.ask(httptest.NewRequest(http.MethodGet, "/signups/"+order, nil))
		if got == want {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s is %q, want %q", order, got, want)
		}
	}
}
