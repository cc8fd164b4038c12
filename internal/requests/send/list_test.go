package send

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"errand/internal/requests/attempt"
	"errand/pkg/messages"
)

// Messages to long lists leave places to those to few: one that finds no place comes back
// later, unless its time is over.
func TestLongListsLeavePlacesToOthers(t *testing.T) {
	list := addresses(0, longList+1)
	opened := 0
	h := &Handler{Caller: &attempt.Caller{}, Open: func(context.Context, messages.ObjectRef) (io.ReadCloser, error) {
		opened++
		return io.NopCloser(strings.NewReader(list)), nil
	}}
	long := func(giveUp time.Duration) *message {
		return &message{Handler: h, size: 1000, request: attempt.Request[messages.SendRequest]{
			Body: messages.SendRequest{ToObject: &messages.ObjectRef{}}, Delivery: attempt.Delivery{GiveUpAt: time.Now().Add(giveUp)}}}
	}
	planned := func(who string, m *message, want error) {
		t.Helper()
		if _, err := m.makePlan(t.Context(), false); !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", who, err, want)
		}
	}
	first, second, overdue := long(time.Hour), long(time.Hour), long(-time.Second)
	planned("the first", first, nil)
	planned("the first, on another reading", first, nil)
	planned("the second beside it", second, errCrowded)
	before := opened
	if planned("the second again", second, errCrowded); opened != before {
		t.Error("a list that is known to be long was read to be put off")
	}
	planned("one that is to be given up", overdue, nil)
	few := long(time.Hour)
	few.request.Body = messages.SendRequest{To: []byte(`["a@example.test"]`)}
	planned("one to few", few, nil)
	for _, m := range []*message{first, second, overdue, few} {
		m.leave()
	}
	planned("the second when the first has left", second, nil)
	if second.leave(); h.planner.crowd.sending != 0 || len(h.planner.comparing) != 0 {
		t.Errorf("%d places stay taken, and %d to compare", h.planner.crowd.sending, len(h.planner.comparing))
	}
}

// A program that ends does not read a list to its end first, nor fail a request for that.
func TestAProgramThatEndsReadsNoMoreOfAList(t *testing.T) {
	stop := make(chan struct{})
	close(stop)
	m := listed(strings.NewReader(addresses(0, 2500)))
	m.Caller.Stop = stop
	m.request.GiveUpAt = time.Now().Add(-time.Second)
	_, err := m.makePlan(t.Context(), false)
	if ev, err := m.unprepared(t.Context(), err); !errors.Is(err, errStopping) {
		t.Errorf("got %v, %v", ev.State, err)
	}
}
