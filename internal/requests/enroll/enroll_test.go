package enroll

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"errand/internal/history"
	"errand/internal/history/historytest"
	"errand/internal/mandates"
	"errand/internal/requests/admission"
	"errand/internal/requests/attempt"
	"errand/internal/requests/hold"
	"errand/internal/retry"
	"errand/pkg/clients"
	"errand/pkg/clients/mandate"
	"errand/pkg/messages"
)

// service enrolls, and lists what it enrolled.
type service struct {
	takes  time.Duration // an enrollment, which is then made
	status int           // of the first answer to an enrollment; others are 200
	lists  time.Duration // how long after it was made an enrollment is listed
	hides  bool          // the list is always empty
	calls  int
	mu     sync.Mutex
	made   []time.Time
}

func (s *service) RoundTrip(r *http.Request) (*http.Response, error) {
	answer := func(status int, body string) (*http.Response, error) {
		return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
	}
	if r.Method == http.MethodPost {
		s.calls++
		status := http.StatusOK
		if s.calls == 1 {
			status = s.status
			if s.takes > 0 || status == http.StatusInternalServerError {
				time.AfterFunc(s.takes, func() {
					s.mu.Lock()
					defer s.mu.Unlock()
					s.made = append(s.made, time.Now())
				})
			}
		}
		select {
		case <-r.Context().Done():
			return nil, r.Context().Err()
		case <-time.After(s.takes):
			return answer(status, `{"url":"https://pay.test/1","order_number":"DD001"}`)
		}
	}
	order := r.URL.Query().Get("order_number")
	records := []string{`{"order_number":"DD000","created_at":"2000-01-01 00:00:00"}`}
	if order != "" {
		records = nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, at := range s.made {
		if time.Since(at) >= s.lists {
			records = append(records, fmt.Sprintf(`{"order_number":"DD001","created_at":%q}`, at.UTC().Format(time.DateTime)))
		}
	}
	if s.hides {
		records = nil
	}
	return answer(http.StatusOK, `{"data":[`+strings.Join(records, ",")+`]}`)
}

// run delivers a request until it has its outcome, as its queue does.
func (s *service) run(t *testing.T, onUnknown string) (outcome messages.State, events string) {
	t.Helper()
	const body = `{%s"order_number":"DD001","amount":100,"payer_id_type":1,"payer_id":"900101011234","payer_name":"Ann Tester",` +
		`"payer_email":"ann@example.com","payer_telephone_number":"0123456789","frequency_mode":"MT","application_reason":"Membership"}`
	request, _, err := messages.Decode[messages.EnrollRequest](fmt.Appendf(nil, body, onUnknown))
	if err != nil {
		t.Fatal(err)
	}
	api, err := mandate.New(mandate.Config{URL: "http://127.0.0.1:1", Token: clients.NewSecret("token")}, clients.Transport(s))
	if err != nil {
		t.Fatal(err)
	}
	log, guard := &historytest.Log{}, &hold.Hold{Interval: time.Minute}
	policy := retry.Policy{First: time.Second, Max: 10 * time.Second, Tries: 3}
	h := &Handler{Upstream: api, Zone: time.UTC,
		Caller: &attempt.Caller{Policy: policy, Timeout: 30 * time.Second, Slots: admission.NewSlots(2), Stop: make(chan struct{})},
		List: &mandates.List{Client: api, Policy: policy, Settle: time.Minute,
			Times: &mandates.Times{Zone: time.UTC, Client: api, Last: log.Last, Logger: zerolog.Nop()}}}
	giveUp := time.Now().Add(24 * time.Hour)
	for outcome == "" {
		permit, err := guard.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		permit.Admit("r1")
		ledger := &history.History{Log: log, Operation: messages.Enroll, ID: "r1", Fingerprint: "f"}
		e, err := ledger.Settle(t.Context(), len(log.Events()) == 0, func(p history.Prior) (messages.Event, error) {
			return h.Handle(t.Context(), attempt.Request[messages.EnrollRequest]{Body: request,
				Delivery: attempt.Delivery{Prior: p, History: ledger, Permit: permit, GiveUpAt: giveUp}})
		})
		permit.Release(false)
		if later, ok := errors.AsType[*history.RetryLaterError](err); ok {
			time.Sleep(time.Until(later.At))
		} else if err != nil {
			t.Fatal(err)
		}
		outcome = e.State
	}
	var all bytes.Buffer
	for _, e := range log.Events() {
		fmt.Fprintf(&all, "%s\n%s\n", e.Subject, e.Body)
	}
	return outcome, all.String()
}

// The payer is enrolled once though the service answers 500, hangs, lists late, or lists nothing at all.
func TestAnEnrollmentOfUnknownFateIsMadeAgainOnProofAlone(t *testing.T) {
	for _, c := range []struct {
		what      string
		service   *service
		onUnknown string
		outcome   messages.State
		calls     int
		says      string
		within    time.Duration
	}{
		{"done and answered 500, the list is empty", &service{status: 500, hides: true}, "retry", messages.Uncertain, 1, "nothing at all",
			25 * time.Hour},
		{"done and answered 500, listed a minute later", &service{status: 500, lists: 59 * time.Second}, "retry", messages.Uncertain, 1,
			"link_lost", 2 * time.Minute},
		{"done beyond the timeout", &service{status: 200, takes: 85 * time.Second}, "retry", messages.Uncertain, 1, "link_lost", 2 * time.Minute},
		{"not done", &service{status: 502}, "retry", messages.Succeeded, 2, `"after_unknown":true`, 70 * time.Second},
		{"not done, by default", &service{status: 502}, "", messages.Uncertain, 1, "no_answer", time.Minute},
		{"done beyond the timeout, by default", &service{status: 200, takes: 85 * time.Second}, "", messages.Uncertain, 1, "no_answer",
			time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			onUnknown := ""
			if c.onUnknown != "" {
				onUnknown = fmt.Sprintf(`"on_unknown":%q,`, c.onUnknown)
			}
			outcome, events := c.service.run(t, onUnknown)
			calls, took := c.service.calls, time.Since(began)
			if outcome != c.outcome || calls != c.calls || !strings.Contains(events, c.says) || took > c.within {
				t.Errorf("%s: got %s after %d calls in %v, want %s after %d calls in %v, and %q in:\n%s", c.what, outcome, calls, took,
					c.outcome, c.calls, c.within, c.says, events)
			}
		})
	}
}
