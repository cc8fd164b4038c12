package act_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"errand/internal/bus"
	"errand/internal/oncall/act"
	"errand/internal/oncall/inspect"
	"errand/pkg/messages"
)

func TestAPausedQueueGivesNothingOutUntilItIsResumed(t *testing.T) {
	t.Parallel()
	p := ann(t)
	q, err := p.JS.Consumer(t.Context(), bus.EnrollQueue.Stream, bus.EnrollQueue.Name)
	if err != nil {
		t.Fatal(err)
	}
	paused := func() bool {
		t.Helper()
		info, err := q.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return info.Paused
	}
	if err := p.Resume(t.Context(), bus.EnrollQueue, "a mistake"); !errors.Is(err, act.ErrNothingDone) {
		t.Errorf("resumed what is not paused: %v, want %v", err, act.ErrNothingDone)
	}
	for range 2 { // a second time it is longer
		until, err := p.Pause(t.Context(), bus.EnrollQueue, time.Hour, "moved")
		if left := time.Until(until); err != nil || !paused() || left < 59*time.Minute || left > time.Hour {
			t.Fatalf("paused %v for %v, %v, want an hour", paused(), left, err)
		}
	}
	ben := as(t, p.Conn, "ben@example.com")
	if _, err := ben.Pause(t.Context(), bus.EnrollQueue, time.Minute, "mine is short"); !errors.Is(err, act.ErrNothingDone) {
		t.Errorf("shortened another's pause: %v, want %v", err, act.ErrNothingDone)
	}
	of, err := inspect.Reader{Conn: p.Conn, JS: p.JS}.Queue(t.Context(), bus.EnrollQueue, time.Now())
	if want := (inspect.Pause{Actor: "ann@example.com", Why: "moved"}); err != nil || of.Pause == nil || *of.Pause != want {
		t.Errorf("it is paused%v, %v, want%v", of.Pause, err, &want)
	}
	if _, err := p.JS.PauseConsumer(t.Context(), bus.EnrollQueue.Stream, bus.EnrollQueue.Name, time.Now().Add(2*time.Hour)); err != nil {
		t.Fatal(err)
	}
	of, err = inspect.Reader{Conn: p.Conn, JS: p.JS}.Queue(t.Context(), bus.EnrollQueue, time.Now())
	if err != nil || of.PausedUntil == nil || of.Pause != nil {
		t.Errorf("paused anew without errand, it is paused%v, %v; nobody knows by whom", of.Pause, err)
	}
	if batch, err := q.FetchNoWait(1); err != nil || len(batch.Messages()) > 0 {
		t.Errorf("it gave something out, %v", err)
	}
	if err := p.Resume(t.Context(), bus.EnrollQueue, "back"); err != nil || paused() {
		t.Fatalf("after it was resumed: paused %v, %v", paused(), err)
	}
	want := []string{"resume ann@example.com mandate-enroll: back, done resumed",
		"pause ann@example.com mandate-enroll: moved, done", "pause ann@example.com mandate-enroll: moved, done",
		"resume ann@example.com mandate-enroll: a mistake, not_done nothing was done: mandate.enroll is not paused"}
	var got []string
	entries, err := act.Acts(t.Context(), p.Conn, act.Query{Target: "mandate-enroll"})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		line := string(e.Verb) + " " + e.Actor + " " + e.Target + ": " + e.Why + ", " + string(e.Result)
		if e.Verb != act.Pause {
			line += " " + e.Message
		}
		got = append(got, line)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("recorded (-want +got):\n%s", diff)
	}
}

func TestThereIsNoPauseWithoutAnEndOrAReason(t *testing.T) {
	t.Parallel()
	p := ann(t)
	for _, how := range []time.Duration{0, -time.Second, act.MaxPause + time.Second} {
		if _, err := p.Pause(t.Context(), bus.EnrollQueue, how, "x"); err == nil {
			t.Errorf("paused for %v", how)
		}
	}
	if _, err := p.Pause(t.Context(), bus.QueueOf(messages.Batch), time.Hour, "x"); err == nil {
		t.Error("paused what has no queue")
	}
	if _, err := p.Pause(t.Context(), bus.EnrollQueue, time.Hour, ""); !errors.Is(err, act.ErrNoReason) {
		t.Errorf("without a reason: %v, want %v", err, act.ErrNoReason)
	}
	c, err := p.JS.Consumer(t.Context(), bus.EnrollQueue.Stream, bus.EnrollQueue.Name)
	if err != nil || c.CachedInfo().Paused {
		t.Errorf("it is paused, %v", err)
	}
}

// As where the person's clock is behind the servers'.
func TestAPauseThatIsOverAlreadyIsNone(t *testing.T) {
	t.Parallel()
	p := ann(t)
	if until, err := p.Pause(t.Context(), bus.EnrollQueue, time.Nanosecond, "x"); err == nil ||
		!strings.Contains(err.Error(), "is not paused now") {
		t.Errorf("paused until %v, %v", until, err)
	}
	if got := acts(t, p, act.Query{}); len(got) != 1 || !strings.Contains(got[0], "is not paused now") {
		t.Errorf("AUDIT: %q", got)
	}
}
