package consumer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"errand/internal/history"
	"errand/internal/history/historytest"
	"errand/internal/requests/attempt"
	"errand/pkg/messages"
)

var request = enrollment(map[string]any{"request_id": "a1"})

func (h *harness) eventsAre(want ...string) {
	h.t.Helper()
	if diff := cmp.Diff(want, h.events()); diff != "" {
		h.t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestAnOutcomeIsStoredAndTheRequestAcknowledged(t *testing.T) {
	h := newHarness(t)
	if got := h.deliver(t.Context(), request, 1); got != "+ACK" {
		t.Errorf("got %s", got)
	}
	if got := h.deliver(t.Context(), request, 2); got != "+ACK" {
		t.Errorf("again: got %s", got)
	}
	h.eventsAre("a1 succeeded")
	if diff := cmp.Diff([]string{"succeeded", "repeated"}, h.settled); diff != "" || len(h.handled) != 1 || h.dead() != nil {
		t.Errorf("settled (-want +got):\n%s\nhandled %q, dead letter %v", diff, h.handled, h.dead())
	}
}

func TestARequestWithoutAnOutcomeComesBack(t *testing.T) {
	h := newHarness(t)
	for _, c := range []struct {
		what  string
		err   error
		n     uint64
		prior func()
		want  string
	}{
		{what: "a fault of the program", err: errors.New("broken"), n: 1, want: "nak 5s"},
		{what: "a fault of the program, the third time", err: errors.New("broken"), n: 3, want: "nak 20s"},
		{what: "a fault of the program, for ever", err: errors.New("broken"), n: 1 << 40, want: "nak 1m0s"},
		{what: "another worker wrote", err: fmt.Errorf("store: %w", history.ErrFenced), n: 3, want: "nak 1s"},
		{what: "deferred", err: &history.RetryLaterError{At: time.Now().Add(time.Hour)}, n: 3, want: "nak 1h0m0s"},
		{what: "due already", err: &history.RetryLaterError{At: time.Now().Add(-time.Hour)}, n: 3, want: "nak 0s"},
	} {
		h.handle(func(context.Context, attempt.Request[messages.EnrollRequest]) (messages.Event, error) {
			return messages.Event{}, c.err
		})
		if got := h.deliver(t.Context(), request, c.n); got != c.want {
			t.Errorf("%s: got %s, want %s", c.what, got, c.want)
		}
	}
	if h.eventsAre(); len(h.settled) != 0 || h.Requests() != 0 {
		t.Errorf("settled %q, %d in flight", h.settled, h.Requests())
	}
}

func TestARequestIsGivenBackWhenTheProgramEnds(t *testing.T) {
	h := newHarness(t)
	h.handle(func(context.Context, attempt.Request[messages.EnrollRequest]) (messages.Event, error) {
		return messages.Event{}, errors.New("broken")
	})
	ended, end := context.WithCancel(t.Context())
	end()
	if got := h.deliver(ended, request, 3); got != "nak 0s" {
		t.Errorf("got %s, want it back at once", got)
	}
	h.stopping.Store(true)
	if got := h.deliver(ended, request, 3); got != "nak 2s" {
		t.Errorf("stopping: got %s, want it back when our own pulls are over", got)
	}
}

func TestAnInvalidRequestEndsWithItsFaultsAndADeadLetter(t *testing.T) {
	h := newHarness(t)
	body := enrollment(map[string]any{"request_id": "a1", "amount": "1"})
	if got := h.deliver(t.Context(), body, 1); got != "+ACK" || len(h.handled) != 0 {
		t.Errorf("got %s, handled %q", got, h.handled)
	}
	h.eventsAre("a1 failed")
	failed := historytest.Decode[messages.FailedBody](t, h.log.Events()[0])
	if failed.Reason != messages.ReasonInvalidRequest || len(failed.Fields["amount"]) != 1 || failed.OrderNumber != "DD-1" {
		t.Errorf("got %+v", failed)
	}
	if d := h.dead(); d == nil || string(d.Data) != body || d.Header.Get("Errand-Reason") != "invalid_request" ||
		d.Header.Get("Errand-Request-Id") != "a1" {
		t.Errorf("the dead letter is %+v", d)
	}
}

// Older rules took it, and a call may have been made.
func TestAnInvalidRequestThatIsUnderWayEndsUncertain(t *testing.T) {
	for _, c := range []struct {
		last   string // the last event: its state and body
		body   string
		end    messages.State
		reason messages.Reason
	}{
		{"started", `{}`, messages.Uncertain, messages.ReasonInterrupted},
		{"deferred", `{"after_unknown":true}`, messages.Uncertain, messages.ReasonInterrupted},
		{"deferred", `{}`, messages.Failed, messages.ReasonInvalidRequest},
	} {
		h := newHarness(t)
		h.log.Put("mandate.enroll."+c.last+".a1", []byte(c.body))
		got := h.deliver(t.Context(), enrollment(map[string]any{"request_id": "a1", "amount": "1"}), 2)
		h.eventsAre("a1 "+c.last, "a1 "+string(c.end))
		if body := historytest.Decode[messages.FailedBody](t, h.log.Events()[1]); got != "+ACK" || body.Reason != c.reason {
			t.Errorf("after %s %s: got %s, reason %s, want %s", c.last, c.body, got, body.Reason, c.reason)
		}
	}
}

func TestADeadLetterOfARepeatSaysWhatTheFirstDid(t *testing.T) {
	for _, c := range []struct {
		what   string
		stored []messages.State
		reason string // "" without a dead letter
	}{
		{"it succeeded", []messages.State{messages.Succeeded}, ""},
		{"it failed", []messages.State{messages.Failed}, "refused"},
		{"it is uncertain", []messages.State{messages.Uncertain}, "refused"},
		{"it was resolved", []messages.State{messages.Uncertain, messages.Resolved}, "refused"},
	} {
		h := newHarness(t)
		for _, state := range c.stored {
			h.log.Put("mandate.enroll."+string(state)+".a1", []byte(`{"reason":"refused"}`))
		}
		if got := h.deliver(t.Context(), request, 2); got != "+ACK" || len(h.handled) != 0 {
			t.Errorf("%s: got %s, handled %q", c.what, got, h.handled)
		}
		reason := ""
		if d := h.dead(); d != nil {
			reason = d.Header.Get("Errand-Reason")
		}
		if reason != c.reason {
			t.Errorf("%s: the dead letter says %q, want %q", c.what, reason, c.reason)
		}
	}
}

// Another would be kept for as long after the repeat as the events are after the outcome.
func TestALateRepeatLeavesNoDeadLetterThatOutlivesItsHistory(t *testing.T) {
	for _, last := range []messages.State{messages.Uncertain, messages.Resolved} {
		for _, later := range []time.Duration{0, 2 * time.Minute} {
			h := newHarness(t)
			for _, state := range slices.Compact([]messages.State{messages.Uncertain, last}) {
				h.log.Put("mandate.enroll."+string(state)+".a1", []byte(`{"reason":"no_answer"}`))
			}
			repeat := h.open("", request, 1)
			repeat.published = repeat.published.Add(later)
			h.settle(t.Context(), repeat)
			if left := h.dead() != nil; left != (later == 0) || left != h.last.DeadLetter || !h.last.Repeated {
				t.Errorf("%s, published %v later: left a dead letter: %v, counted %+v", last, later, left, h.last)
			}
		}
	}
}

func TestAConflictIsReportedUnderAnIDOfTheQueues(t *testing.T) {
	h := newHarness(t)
	h.deliver(t.Context(), request, 1)
	other := enrollment(map[string]any{"request_id": "a1", "order_number": "DD-2"})
	for range 2 {
		if got := h.deliver(t.Context(), other, 2); got != "+ACK" {
			t.Errorf("got %s", got)
		}
	}
	h.eventsAre("a1 succeeded", "own failed", "own failed")
	failed := historytest.Decode[messages.FailedBody](t, h.log.Events()[1])
	if failed.Reason != messages.ReasonConflict || failed.ConflictsWith != "a1" || failed.OrderNumber != "DD-2" || len(h.handled) != 1 {
		t.Errorf("got %+v, handled %q", failed, h.handled)
	}
	if d := h.dead(); d == nil || d.Header.Get("Errand-Reason") != "conflict" {
		t.Errorf("the dead letter is %+v", d)
	}
}

// A stream that was made again counts from one again: its numbers may be another's, and
// what failed there is not corrected by a conflict.
func TestAConflictOverTheQueuesOwnIDGoesToTheNext(t *testing.T) {
	h := newHarness(t)
	h.log.Put("mandate.enroll.succeeded.a1", []byte(`{"fingerprint":"f"}`))
	h.log.Put("mandate.enroll.failed.MANDATE_REQUESTS-1", []byte(`{"reason":"refused","fingerprint":"f"}`))
	if got := h.deliver(t.Context(), request, 2); got != "+ACK" {
		t.Errorf("got %s", got)
	}
	h.eventsAre("a1 succeeded", "own failed", "own at its time failed")
	failed := historytest.Decode[messages.FailedBody](t, h.log.Events()[2])
	if failed.Reason != messages.ReasonConflict || failed.ConflictsWith != "MANDATE_REQUESTS-1" || len(h.handled) != 0 {
		t.Errorf("got %+v, handled %q", failed, h.handled)
	}
}

func TestOnlyAValidRequestCorrectsOneThatFailed(t *testing.T) {
	for _, c := range []struct {
		what, first, second string
		events              []string
		handled             int
	}{
		{"a valid one", `{"reason":"refused","fingerprint":"f"}`, request, []string{"a1 failed", "a1 reopened", "a1 succeeded"}, 1},
		{"an invalid one", `{"reason":"refused","fingerprint":"f"}`, enrollment(map[string]any{"request_id": "a1", "amount": "1"}),
			[]string{"a1 failed", "own failed"}, 0},
		{"one behind a call of unknown fate", `{"reason":"refused","fingerprint":"f","after_unknown":true}`, request,
			[]string{"a1 failed", "own failed"}, 0},
	} {
		h := newHarness(t)
		h.log.Put("mandate.enroll.failed.a1", []byte(c.first))
		if got := h.deliver(t.Context(), c.second, 2); got != "+ACK" || len(h.handled) != c.handled {
			t.Errorf("%s: got %s, handled %q", c.what, got, h.handled)
		}
		h.eventsAre(c.events...)
	}
}

func TestARequestThatMakesItsHandlingPanicIsTakenOut(t *testing.T) {
	panics := func(context.Context, attempt.Request[messages.EnrollRequest]) (messages.Event, error) {
		panic("a payer's data")
	}
	started := func(ctx context.Context, r attempt.Request[messages.EnrollRequest]) (messages.Event, error) {
		if r.Prior.State == "" {
			if err := r.History.Store(ctx, messages.Started, &messages.EnrollStarted{Fingerprint: r.History.Fingerprint}); err != nil {
				return messages.Event{}, err
			}
		}
		panic("a payer's data")
	}
	for _, c := range []struct {
		what    string
		handle  Handler[messages.EnrollRequest]
		decode  bool // it is the decoder that panics
		events  []string
		reason  messages.Reason
		outcome string
		handled int
	}{
		{"the handler", panics, false, []string{"a1 failed"}, "invalid_request", "failed", 3},
		{"the handler, after started", started, false, []string{"a1 started", "a1 uncertain"}, "interrupted", "uncertain", 3},
		{"the decoder", panics, true, []string{"own failed"}, "invalid_request", "failed", 0},
	} {
		h := newHarness(t)
		h.handle(c.handle)
		if c.decode {
			h.read = func([]byte) (messages.EnrollRequest, messages.Meta, error) { panic("a payer's data") }
		}
		for n, want := range []string{"nak 5s", "nak 10s", "+ACK"} {
			if got := h.deliver(t.Context(), request, uint64(n+1)); got != want {
				t.Errorf("%s, delivery %d: got %s, want %s", c.what, n+1, got, want)
			}
			if d := h.dead(); (d != nil) != (n == 2) {
				t.Errorf("%s, delivery %d: the dead letter is %v", c.what, n+1, d)
			}
		}
		h.eventsAre(c.events...)
		last := historytest.Decode[messages.FailedBody](t, h.log.Events()[len(c.events)-1])
		if last.Reason != c.reason || h.panics != 3 || len(h.handled) != c.handled {
			t.Errorf("%s: reason %s, counted %d panics, handled %q", c.what, last.Reason, h.panics, h.handled)
		}
		if diff := cmp.Diff([]string{c.outcome}, h.settled); diff != "" {
			t.Errorf("%s: settled (-want +got):\n%s", c.what, diff)
		}
		if d := h.dead(); d != nil && (string(d.Data) != request || d.Header.Get("Errand-Message") != last.Message) {
			t.Errorf("%s: the dead letter is %s %v", c.what, d.Data, d.Header)
		}
	}
}

// The request that it was in conflict with has failed since, so that it could correct it: but it had its end.
func TestAConflictIsReportedOnceWhateverTheOtherRequestBecameSince(t *testing.T) {
	h := newHarness(t)
	h.log.Put("mandate.enroll.failed.MANDATE_REQUESTS-1", fmt.Appendf(nil, `{"reason":"conflict","fingerprint":%q}`, fingerprint(t, request)))
	h.log.Put("mandate.enroll.failed.a1", []byte(`{"reason":"refused","fingerprint":"another"}`))
	if got := h.deliver(t.Context(), request, 2); got != "+ACK" || len(h.handled) != 0 || h.last.DeadLetter != true {
		t.Errorf("delivered again: %s, handled %q, %+v", got, h.handled, h.last)
	}
	h.eventsAre("own failed", "a1 failed")
}

// Requests without an id are run, although the histories tell of an earlier queue's under their numbers.
func TestARequestOfAQueueMadeAgainIsRun(t *testing.T) {
	h := newHarness(t)
	h.log.Put("mandate.enroll.succeeded.MANDATE_REQUESTS-1", []byte(`{"fingerprint":"`+h.open("", enrollment(nil), 1).digest+`"}`))
	h.log.Put("mandate.enroll.failed.MANDATE_REQUESTS-2", []byte(`{"reason":"refused","fingerprint":"f"}`))
	for n, delivery := range []uint64{1, 2} {
		d := h.open("", enrollment(nil), delivery)
		d.ids[0] = fmt.Sprint("MANDATE_REQUESTS-", n+1)
		d.published = d.published.Add(time.Hour)
		h.settle(t.Context(), d)
		if len(h.handled) == 0 || h.name(h.handled[len(h.handled)-1]) != "own at its time" {
			t.Errorf("request %d: handled %q", n+1, h.handled)
		}
	}
	h.eventsAre("own succeeded", "own failed", "own at its time succeeded", "own at its time succeeded")
}
