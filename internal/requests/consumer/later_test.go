package consumer

import (
	"context"
	"fmt"
	"testing"
	"time"

	"errand/internal/bus"
	"errand/internal/history"
	"errand/internal/requests/attempt"
	"errand/pkg/messages"
)

// moves puts scheduled requests whose time has come into the queue.
func (h *harness) moves() {
	h.t.Helper()
	found, err := bus.Check(h.t.Context(), h.js, []bus.Queue{bus.EnrollSchedules})
	h.must(err)
	publisher, err := bus.NewPublisher(h.nc)
	h.must(err)
	ctx, stop := context.WithCancel(h.t.Context())
	done := make(chan error)
	s := bus.Schedules{Publisher: publisher, Queue: bus.NewPull(h.nc, found.Queues[bus.EnrollSchedules.Name]), Logger: h.Logger}
	go func() { done <- s.Run(ctx, ctx) }()
	h.t.Cleanup(func() { stop(); <-done })
}

func (h *harness) scheduled() uint64 {
	h.t.Helper()
	s, err := h.js.Stream(h.t.Context(), bus.MandateScheduled)
	h.must(err)
	return s.CachedInfo().State.Msgs
}

// next takes what is in the queue.
func (h *harness) next() *delivery[messages.EnrollRequest] {
	h.t.Helper()
	r, err := h.lanes[0].queue.Next(h.t.Context(), 10*time.Second)
	h.must(err)
	permit, err := h.hold.Acquire(h.t.Context())
	h.must(err)
	return h.Consumer.open(taken{r, h.lanes[0]}, permit)
}

func TestAScheduledRequestLeavesItsQueueAndRunsAtItsTimeUnderItsID(t *testing.T) {
	for _, id := range []string{"a1", ""} {
		h := newHarness(t)
		at := time.Now().Add(2 * time.Second)
		body := enrollment(map[string]any{"request_id": id, "not_before": at.UTC().Format(time.RFC3339Nano)})
		var ran time.Time
		var giveUp time.Duration
		h.handle(func(ctx context.Context, r attempt.Request[messages.EnrollRequest]) (messages.Event, error) {
			ran, giveUp = time.Now(), r.GiveUpAt.Sub(at).Round(time.Millisecond)
			if r.Prior.State != messages.Deferred || r.Prior.Waited() != 0 {
				t.Errorf("run over %+v", r.Prior)
			}
			return succeeds(ctx, r)
		})
		own := h.deliver(t.Context(), body, 1)
		again := "+ACK"
		if id != "" { // a repeat, or what was delivered again since the program died
			again = h.deliver(t.Context(), body, 2)
		}
		if own != "+ACK" || again != "+ACK" || h.scheduled() != 1 || len(h.handled) != 0 {
			t.Fatalf("%q: answered %s, %s; %d scheduled, handled %q", id, own, again, h.scheduled(), h.handled)
		}
		h.moves()
		d := h.next()
		h.settle(t.Context(), d)
		if h.answered(); ran.Before(at) || ran.Sub(at) > 5*time.Second || giveUp != 24*time.Hour || h.last.Age > 5*time.Second {
			t.Errorf("%q: began %v after its time, given up %v after it, its age %v", id, ran.Sub(at), giveUp, h.last.Age)
		}
		name := id
		if id == "" {
			name = "own"
		}
		h.eventsAre(name+" deferred", name+" succeeded")
		for left := 100; h.scheduled() != 0; left-- {
			if <-time.After(50 * time.Millisecond); left == 0 {
				t.Fatalf("%q: %d are still scheduled", id, h.scheduled())
			}
		}
	}
}

// A scheduled request that was cancelled, and corrected since, does not run at its time, nor correct the correction that failed.
func TestWhatWasCancelledBeforeItsTimeNeverRuns(t *testing.T) {
	for _, corrected := range []bool{false, true} {
		h := newHarness(t)
		body := enrollment(map[string]any{"request_id": "a1", "not_before": time.Now().Add(time.Second).UTC().Format(time.RFC3339Nano)})
		h.deliver(t.Context(), body, 1)
		cancelled := &history.History{Log: h.log, Operation: messages.Enroll, ID: "a1"}
		_, _ = cancelled.Read(t.Context())
		h.must(cancelled.Store(t.Context(), messages.Failed, &messages.FailedBody{Reason: messages.ReasonCancelled,
			Fingerprint: fingerprint(t, body)}))
		want := []string{"a1 deferred", "a1 failed"}
		if corrected {
			h.handle(ends(messages.Failed, &messages.FailedBody{Reason: messages.ReasonRefused, Fingerprint: fingerprint(t, request)}))
			h.deliver(t.Context(), request, 1)
			want = append(want, "a1 reopened", "a1 failed")
		}
		ran := len(h.handled)
		h.moves()
		h.settle(t.Context(), h.next())
		if h.answered() != "+ACK" || len(h.handled) != ran || h.dead() == nil {
			t.Errorf("corrected %v: it ran, or left no dead letter", corrected)
		}
		h.eventsAre(want...)
	}
}

// By its own clock the program begins none early, and a publisher's claim that a request was scheduled runs nothing.
func TestNothingBeginsBeforeItsTime(t *testing.T) {
	h := newHarness(t)
	at := time.Now().Add(time.Hour)
	body := enrollment(map[string]any{"request_id": "a1", "not_before": at.UTC().Format(time.RFC3339Nano)})
	h.deliver(t.Context(), body, 1)
	early := h.open("", body, 1)
	early.claim = claim{claimed: true, of: "a1", scheduled: h.log.Events()[0].Sequence}
	h.settle(t.Context(), early)
	if got := h.answered(); got != "-NAK" || len(h.handled) != 0 {
		t.Errorf("by a clock behind the servers': %s, handled %q", got, h.handled)
	}
	for what, c := range map[string]claim{
		"another's event": {claimed: true, of: "a2", scheduled: 1}, "none": {claimed: true, of: "a1"}, "no id": {claimed: true, scheduled: 1}} {
		d := h.open("", enrollment(map[string]any{"amount": "200"}), 1)
		d.claim = c
		h.settle(t.Context(), d)
		last := h.log.Events()
		if h.answered() != "+ACK" || len(h.handled) != 0 || messages.StateOf(last[len(last)-1].Subject) != messages.Failed {
			t.Errorf("%s: handled %q, %v", what, h.handled, h.events())
		}
	}
}

// A clock that was set back does not defer what has begun.
func TestWhatHasBegunIsNotScheduled(t *testing.T) {
	h := newHarness(t)
	body := enrollment(map[string]any{"request_id": "a1", "not_before": time.Now().Add(time.Hour).UTC().Format(time.RFC3339)})
	h.log.Put("mandate.enroll.started.a1", fmt.Appendf(nil, `{"fingerprint":%q,"attempt":1,"order_number":"DD-1"}`, fingerprint(t, body)))
	h.deliver(t.Context(), body, 2)
	h.eventsAre("a1 started", "a1 succeeded")
	if h.scheduled() != 0 {
		t.Error("it was scheduled")
	}
}

// Nor does what a person ran again before its time and cancelled conflict with what corrected it since.
func TestWhatWasRedrivenBeforeItsTimeAndCancelledEndedSo(t *testing.T) {
	h := newHarness(t)
	body := enrollment(map[string]any{"request_id": "a1", "not_before": time.Now().Add(time.Second).UTC().Format(time.RFC3339Nano)})
	print := fingerprint(t, body)
	at := h.log.Put("mandate.enroll.reopened.a1", fmt.Appendf(nil, `{"by":"ann","was":{"state":"failed","reason":"cancelled"},"fingerprint":%q}`,
		print))
	if h.settle(t.Context(), h.redriven("a1", at, body)); h.answered() != "+ACK" || h.scheduled() != 1 {
		t.Fatal("it is not scheduled")
	}
	h.log.Put("mandate.enroll.failed.a1", fmt.Appendf(nil, `{"reason":"cancelled","fingerprint":%q}`, print))
	h.handle(ends(messages.Failed, &messages.FailedBody{Reason: messages.ReasonRefused, Fingerprint: fingerprint(t, request)}))
	h.deliver(t.Context(), request, 1)
	h.moves()
	h.settle(t.Context(), h.next())
	h.answered()
	h.eventsAre("a1 reopened", "a1 deferred", "a1 failed", "a1 reopened", "a1 failed")
}
