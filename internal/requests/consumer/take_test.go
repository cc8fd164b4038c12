package consumer

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/requests/admission"
	"errand/internal/requests/attempt"
	"errand/internal/requests/hold"
	"errand/pkg/clients"
	"errand/pkg/messages"
)

// run settles n requests until stop is called, which says what the queue has then.
func (h *harness) run(n int, inFlight admission.Slots, handle Handler[messages.EnrollRequest]) (stop func() *jetstream.ConsumerInfo) {
	h.t.Helper()
	for i := range n {
		if _, err := h.js.Publish(h.t.Context(), messages.Enroll.Requested(),
			[]byte(enrollment(map[string]any{"request_id": fmt.Sprint("r", i)}))); err != nil {
			h.t.Fatal(err)
		}
	}
	// The server counts what waits a moment after it has stored it; from then on it counts right.
	for began := time.Now(); h.state().NumPending != uint64(n); {
		if time.Since(began) > 10*time.Second {
			h.t.Fatalf("%d requests wait, want %d", h.state().NumPending, n)
		}
	}
	h.InFlight, h.lanes[0].places, h.Consumer.handle = inFlight, inFlight, handle
	h.Settled = func(Outcome) {}
	ctx, end := context.WithCancel(h.t.Context())
	ran := make(chan error, 1)
	go func() { ran <- h.Run(ctx, h.t.Context()) }()
	return func() *jetstream.ConsumerInfo {
		end()
		h.must(<-ran)
		if h.InFlight.Taken() != 0 || h.Requests() != 0 {
			h.t.Errorf("%d places are taken and %d requests leased", h.InFlight.Taken(), h.Requests())
		}
		// The server works the acknowledgements off; a message that nobody has stays for 30 s.
		for began := time.Now(); ; {
			if info := h.state(); info.NumAckPending == 0 || time.Since(began) > 10*time.Second {
				return info
			}
		}
	}
}

func (h *harness) state() *jetstream.ConsumerInfo {
	h.t.Helper()
	info, err := h.source.Info(h.t.Context())
	h.must(err)
	return info
}

func TestNoMessageIsInTheProcessThatNoWorkerHas(t *testing.T) {
	h := newHarness(t)
	begun, release := make(chan string, 100), make(chan struct{})
	stop := h.run(100, admission.NewSlots(8), func(ctx context.Context, r attempt.Request[messages.EnrollRequest]) (messages.Event, error) {
		begun <- r.History.ID
		<-release
		return succeeds(ctx, r)
	})
	for range 8 {
		<-begun
	}
	if info := h.state(); info.NumAckPending != 8 || info.NumPending != 92 {
		t.Errorf("%d messages are in the process and %d wait, want 8 and 92", info.NumAckPending, info.NumPending)
	}
	close(release)
	for range 92 {
		<-begun
	}
	if info := stop(); info.NumAckPending != 0 || info.NumRedelivered != 0 {
		t.Errorf("%d messages are left in the process, %d came again", info.NumAckPending, info.NumRedelivered)
	}
}

// What was sent before the stop is settled; nothing of it waits for its AckWait.
func TestAStopLeavesNoMessageBehind(t *testing.T) {
	h := newHarness(t)
	begun := make(chan string, 1000)
	type request = attempt.Request[messages.EnrollRequest]
	stop := h.run(1000, admission.NewSlots(40), func(ctx context.Context, r request) (messages.Event, error) {
		begun <- r.History.ID
		return succeeds(ctx, r)
	})
	for range 300 {
		<-begun
	}
	info := stop()
	if info.NumAckPending != 0 || info.NumRedelivered != 0 || info.NumPending+uint64(len(h.log.Events())) != 1000 {
		t.Errorf("%d messages are in no process, %d came again; %d wait and %d are settled", info.NumAckPending, info.NumRedelivered,
			info.NumPending, len(h.log.Events()))
	}
}

// A hold that begins while messages come gives them back: what is in flight then is delivered
// once more, and what waits is not.
func TestAHoldThatBeginsGivesBackWhatComes(t *testing.T) {
	const requests, inFlight = 200, 20
	h := newHarness(t)
	h.hold.Interval = 200 * time.Millisecond
	var down atomic.Bool
	var calls atomic.Int64 // that were refused
	down.Store(true)
	refused, handled := make(chan struct{}, requests), make(chan string, 2*requests)
	stop := h.run(requests, admission.NewSlots(inFlight), func(ctx context.Context, r attempt.Request[messages.EnrollRequest],
	) (messages.Event, error) {
		defer func() { handled <- r.History.ID }()
		if err := r.Permit.Call(); err != nil { // it began just now
			return messages.Event{}, err
		}
		if down.Load() {
			calls.Add(1)
			err := &clients.Error{Fate: clients.Held, Status: 403}
			r.Permit.Observe(hold.Call{Err: err})
			refused <- struct{}{}
			return messages.Event{}, err
		}
		r.Permit.Observe(hold.Call{})
		return succeeds(ctx, r)
	})
	<-refused
	<-refused
	if down.Store(false); !h.hold.Active() {
		t.Fatal("two refused requests began no hold")
	}
	for seen := map[string]bool{}; len(seen) < requests; seen[<-handled] = true {
	}
	info := stop()
	if n := info.Delivered.Consumer; calls.Load() > inFlight || n > requests+2*inFlight {
		t.Errorf("%d calls were refused, of %d in flight; %d deliveries of %d requests", calls.Load(), inFlight, n, requests)
	}
}

func TestAnIdleQueueKeepsOneWorkerFromTheOthers(t *testing.T) {
	h := newHarness(t)
	found, err := bus.Check(t.Context(), h.js, []bus.Queue{bus.TransactionsQueue})
	h.must(err)
	settings := h.Settings
	settings.InFlight = admission.NewSlots(4)
	source := found.Queues[bus.TransactionsQueue.Name]
	idle := New[messages.TransactionsRequest](settings, bus.NewPull(h.nc, source), &hold.Hold{Interval: time.Minute}, nil, nil)
	ctx, end := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- idle.Run(ctx, t.Context()) }()
	for waiting := 0; waiting == 0; {
		info, err := source.Info(t.Context())
		h.must(err)
		waiting = info.NumWaiting
	}
	begun, release := make(chan string, 10), make(chan struct{})
	stop := h.run(10, settings.InFlight, func(ctx context.Context, r attempt.Request[messages.EnrollRequest]) (messages.Event, error) {
		begun <- r.History.ID
		<-release
		return succeeds(ctx, r)
	})
	for range 3 {
		<-begun
	}
	if info := h.state(); info.NumAckPending != 3 {
		t.Errorf("%d requests are in flight beside an idle queue, want 3 of 4", info.NumAckPending)
	}
	close(release)
	for range 7 {
		<-begun
	}
	end()
	h.must(<-ran)
	stop()
}

func TestAQueueThatRefusesPullsIsSaidToUntilItGivesAgain(t *testing.T) {
	h := newHarness(t)
	set := func(expires time.Duration) {
		t.Helper()
		config := h.state().Config
		config.MaxRequestExpires = expires
		_, err := h.js.UpdateConsumer(t.Context(), bus.EnrollQueue.Stream, config)
		h.must(err)
	}
	set(time.Second)
	settled := make(chan struct{}, 1)
	stop := h.run(1, admission.NewSlots(4), func(ctx context.Context, r attempt.Request[messages.EnrollRequest]) (messages.Event, error) {
		settled <- struct{}{}
		return succeeds(ctx, r)
	})
	until := func(said bool) {
		t.Helper()
		for began := time.Now(); strings.Contains(h.Fault(), "delivers no requests") != said; {
			if time.Since(began) > time.Minute {
				t.Fatalf("got %q, want it said: %v", h.Fault(), said)
			}
			runtime.Gosched()
		}
	}
	until(true)
	set(0)
	<-settled
	until(false)
	stop()
}
