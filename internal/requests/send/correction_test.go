package send

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"errand/internal/history"
	"errand/pkg/clients"
	"errand/pkg/clients/mail"
	"errand/pkg/messages"
)

// lagging is a log in memory whose replica has not got yet what was stored last: only the
// whole history of a request is read from where it is written.
type lagging struct {
	mu     sync.Mutex
	events []history.Entry
}

func (l *lagging) Append(_ context.Context, r history.Record) (uint64, error) {
	body, err := r.Event.Encode()
	if err != nil {
		return 0, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last(r.Event.Operation.Filter(r.Event.ID), l.events).Sequence != r.Last {
		return 0, history.ErrFenced
	}
	l.events = append(l.events, history.Entry{Subject: r.Event.Subject(), Sequence: uint64(len(l.events) + 1), At: time.Now(), Body: body})
	return uint64(len(l.events)), nil
}

func (l *lagging) Last(_ context.Context, _ messages.Operation, filter string) (history.Entry, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if strings.Contains(filter, "*") {
		return l.last(filter, l.events), nil
	}
	return l.last(filter, l.events[:max(len(l.events)-1, 0)]), nil
}

func (l *lagging) last(filter string, events []history.Entry) (e history.Entry) {
	before, after, _ := strings.Cut(filter, "*")
	for _, have := range events {
		if have.Subject == filter || after != "" && strings.HasPrefix(have.Subject, before) && strings.HasSuffix(have.Subject, after) {
			e = have
		}
	}
	return e
}

// refusing says no to every message.
type refusing struct{}

func (refusing) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusUnprocessableEntity, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
}

// The batches that were refused before a correction are sent after it, also if the replica
// that is asked for the correction has not got it yet.
func TestACorrectionSendsRefusedBatchesWhateverAReplicaKnows(t *testing.T) {
	log, taken := &lagging{}, &upstream{to: map[string]int{}}
	deliver := func(transport http.RoundTripper, recipients int) messages.Event {
		h := handler(t, taken)
		var err error
		if h.Upstream, err = mail.New(mail.Config{URL: "http://127.0.0.1:1", Key: clients.NewSecret("key")},
			clients.Transport(transport)); err != nil {
			t.Fatal(err)
		}
		r := request(t, log, many(recipients))
		r.History.Corrects = time.Now()
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
