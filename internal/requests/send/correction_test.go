package send

import (
	"net/http"
	"testing"
	"time"

	"errand/internal/history"
	"errand/internal/history/historytest"
	"errand/pkg/clients"
	"errand/pkg/clients/mail"
	"errand/pkg/messages"
)

// refusing says no to every message.
type refusing struct{}

func (refusing) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusUnprocessableEntity, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
}

// The batches that were refused before a correction are sent after it, also if the replica
// that is asked for the correction has not got it yet.
func TestACorrectionSendsRefusedBatchesWhateverAReplicaKnows(t *testing.T) {
	log, taken := &historytest.Log{Lag: 1}, &upstream{to: map[string]int{}}
	deliver := func(transport http.RoundTripper, recipients int) messages.Event {
		h := handler(t, taken)
		var err error
		if h.Upstream, err = mail.New(mail.Config{URL: "http://127.0.0.1:1", Key: clients.NewSecret("key")},
			clients.Transport(transport)); err != nil {
			t.Fatal(err)
		}
		r := request(t, log, many(recipients))
		r.History.Corrects, r.History.Published = true, time.Now()
		ev, err := r.History.Settle(t.Context(), false, func(p history.Prior) (messages.Event, error) {
			r.Prior = p
			return h.Handle(t.Context(), r)
		})
		if err != nil {
			t.Fatal(err)
		}
		return ev
	}
	if ev := deliver(refusing{}, 2500); ev.State != messages.Failed {
		t.Fatalf("%s, want failed", ev.State)
	}
	if ev := deliver(taken, 2501); ev.State != messages.Accepted || len(taken.to) != 2501 {
		t.Errorf("%s, and %d recipients served; want accepted, 2501", ev.State, len(taken.to))
	}
}
