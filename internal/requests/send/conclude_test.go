package send

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"errand/internal/history"
	"errand/internal/history/historytest"
	"errand/internal/retry"
	"errand/pkg/clients"
	"errand/pkg/clients/mail"
	"errand/pkg/messages"
)

// behind is a log of which one replica has got no second call yet: who asks it for the last
// announcement gets that of the first.
type behind struct{ historytest.Log }

func (l *behind) Last(ctx context.Context, op messages.Operation, filter string) (history.Entry, error) {
	if strings.Contains(filter, ".started.") {
		for _, e := range l.Events() {
			if e.Subject == filter {
				return e, nil
			}
		}
	}
	return l.Log.Last(ctx, op, filter)
}

// unclear answers each message with a status that does not tell its fate.
type unclear struct {
	mu    sync.Mutex
	calls int
}

func (f *unclear) RoundTrip(r *http.Request) (*http.Response, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	return &http.Response{StatusCode: http.StatusInternalServerError, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
}

// sendingLog is what the sending log's reader knows: the last call of each batch, and what
// became of it when it was asked.
type sendingLog struct {
	mu        sync.Mutex
	last      map[int]messages.SentBody
	concluded map[int]messages.ConcludedBody
}

func (s *sendingLog) sent(_ context.Context, r messages.SentBody) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last[r.Batch] = r
	return nil
}

func (s *sendingLog) conclude(outcome messages.Conclusion) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n, r := range s.last {
		s.concluded[n] = messages.ConcludedBody{BatchEvidence: messages.BatchEvidence{Batch: n, Count: r.Count, Outcome: outcome}, Until: r.Until}
	}
}

func (s *sendingLog) of(_ context.Context, _ string, n int) (messages.ConcludedBody, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.concluded[n], nil
}

// That the first call sent nothing says nothing about the second one, whatever a replica knows
// of that: it is not sent a third time before the log has shown what became of the second.
func TestAConclusionAboutOneCallIsNotTakenForALaterOne(t *testing.T) {
	for name, recipients := range map[string]int{"one batch": 1000, "three batches": 2500} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log, service := &behind{}, &unclear{}
				seen := &sendingLog{last: map[int]messages.SentBody{}, concluded: map[int]messages.ConcludedBody{}}
				h := handler(t, &upstream{})
				h.Caller.Policy = retry.Policy{First: time.Second, Max: 10 * time.Second, Tries: 1}
				h.Sent, h.Concluded = seen.sent, seen.of
				var err error
				if h.Upstream, err = mail.New(mail.Config{URL: "http://127.0.0.1:1", Key: clients.NewSecret("key")}, clients.Transport(service)); err != nil {
					t.Fatal(err)
				}
				batches := (recipients + h.Size - 1) / h.Size
				deliver := func(wantCalls int) messages.State {
					t.Helper()
					time.Sleep(15 * time.Minute) // longer than any deferral
					r := request(t, log, many(recipients))
					r.Body.OnUnknown, r.GiveUpAt = messages.OnUnknownConclude, time.Now().Add(24*time.Hour)
					ev, _ := r.History.Settle(t.Context(), false, func(p history.Prior) (messages.Event, error) {
						r.Prior = p
						return h.Handle(t.Context(), r)
					})
					if service.calls != wantCalls*batches {
						t.Fatalf("%d calls of %d batches, want %d each", service.calls, batches, wantCalls)
					}
					return ev.State
				}
				deliver(1)
				deliver(1)
				seen.conclude(messages.WasNotSent)
				deliver(2)
				deliver(2)
				deliver(2) // what it says is carried from one deferral to the next
				seen.conclude(messages.WasAccepted)
				if state := deliver(2); state != messages.Accepted {
					t.Errorf("got %q, want accepted", state)
				}
			})
		})
	}
}
