package attempt

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"errand/internal/history"
	"errand/internal/history/historytest"
	"errand/internal/requests/admission"
	"errand/internal/requests/hold"
	"errand/internal/retry"
	"errand/pkg/clients"
	"errand/pkg/messages"
)

var policy = retry.Policy{First: 200 * time.Millisecond, Max: 10 * time.Second, Tries: 3}

const timeout = 30 * time.Second

// harness is one request, its log, and an upstream that answers as a script says.
type harness struct {
	log    historytest.Log
	hold   hold.Hold
	caller Caller
	call   Call[string] // what each delivery's call begins with

	results []string // what calls come to, see resultOf; the last one repeats
	looks   []string // what OnUnknown answers, likewise, see answerOf

	mu      sync.Mutex
	journal []string // what happened, in order: "store started", "record", "look", "call ok", …
}

func newHarness(results, looks string) *harness {
	h := &harness{results: strings.Split(results, ", "), looks: strings.Split(looks, ", "), hold: hold.Hold{Interval: time.Minute}}
	h.caller = Caller{Policy: policy, Timeout: timeout, Slots: admission.NewSlots(1), Stop: make(chan struct{})}
	h.call = Call[string]{Delivery: Delivery{GiveUpAt: time.Now().Add(24 * time.Hour)}, OnUnknown: h.onUnknown, Make: h.makeCall,
		Started: func(deadline messages.Time, afterUnknown bool) messages.Body {
			return &messages.EnrollStarted{Deadline: deadline, Fingerprint: "f", AfterUnknown: afterUnknown}
		}}
	h.log.Before = func(e messages.Event) error { h.note("store " + string(e.State)); return nil }
	return h
}

func (h *harness) note(what string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.journal = append(h.journal, what)
}

// count is how many entries of the journal begin so.
func (h *harness) count(what string) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, entry := range h.journal {
		if strings.HasPrefix(entry, what) {
			n++
		}
	}
	return n
}

// next takes the next line of a script.
func next(script *[]string) string {
	line := (*script)[0]
	if len(*script) > 1 {
		*script = (*script)[1:]
	}
	return line
}

func (h *harness) makeCall(context.Context) (string, error) {
	result := next(&h.results)
	h.note("call " + result)
	return "the answer", resultOf(result)
}

func (h *harness) onUnknown(_ context.Context, fresh bool) (Verdict, error) {
	look := "look"
	if fresh {
		look = "fresh look"
	}
	h.note(look)
	return answerOf(next(&h.looks))
}

// resultOf is the error of a call, by its name in a script.
func resultOf(name string) error {
	failed := func(fate clients.Fate, reason messages.Reason, status int, after time.Duration) error {
		return &clients.Error{Operation: "enroll", Fate: fate, Reason: reason, Status: status, Message: name, RetryAfter: after}
	}
	switch name {
	case "ok":
		return nil
	case "refused":
		return failed(clients.Refused, messages.ReasonRefused, 422, 0)
	case "busy":
		return failed(clients.Busy, messages.ReasonBusy, 503, 0)
	case "busy 8s":
		return failed(clients.Busy, messages.ReasonBusy, 429, 8*time.Second)
	case "busy 2m":
		return failed(clients.Busy, messages.ReasonBusy, 429, 2*time.Minute)
	case "busy 24h":
		return failed(clients.Busy, messages.ReasonBusy, 503, 24*time.Hour)
	case "held 24h":
		return failed(clients.Held, messages.ReasonHeld, 402, 24*time.Hour)
	case "held":
		return failed(clients.Held, messages.ReasonHeld, 403, 0)
	case "held 2m":
		return failed(clients.Held, messages.ReasonHeld, 402, 2*time.Minute)
	case "not found":
		return failed(clients.Held, messages.ReasonHeld, 404, 0)
	case "unknown":
		return failed(clients.Unknown, messages.ReasonNoAnswer, 500, 0)
	case "unreadable":
		return failed(clients.Unknown, messages.ReasonBadAnswer, 200, 0)
	case "other":
		return errors.New("an error of no client")
	}
	panic("no such result: " + name)
}

// answerOf is what OnUnknown answers, by its name in a script.
func answerOf(name string) (Verdict, error) {
	switch name {
	case "again":
		return Done, nil
	case "uncertain":
		return Uncertain, nil
	case "error":
		return "", resultOf("busy")
	}
	panic("no such answer: " + name)
}

// outcome is how a delivery ended, with what the log and the clock show of it.
type outcome struct {
	Result[string]
	err    error
	calls  int
	looks  int
	events string        // of all deliveries, with their attempt: "started/1 succeeded/1"
	wait   time.Duration // from the end of the delivery to NotBefore
}

// deliver runs one delivery as a handler does: the call over its history, then the event.
func (h *harness) deliver(ctx context.Context) (o outcome) {
	ledger := &history.History{Log: &h.log, Operation: messages.Enroll, ID: "r1", Fingerprint: "f"}
	permit, err := h.hold.Acquire(ctx)
	if err != nil {
		return outcome{err: err}
	}
	defer permit.Release(false)
	permit.Admit("r1")
	calls, looks := h.count("call"), h.count("look")+h.count("fresh look")
	_, o.err = ledger.Settle(ctx, len(h.log.Events()) == 0, func(p history.Prior) (messages.Event, error) {
		call := h.call
		call.History, call.Prior, call.Permit = ledger, p, permit
		var err error
		if o.Result, err = Run(ctx, &h.caller, call); err != nil {
			return messages.Event{}, err
		}
		switch o.Verdict {
		case Done:
			return ledger.Event(messages.Succeeded, &messages.EnrollSucceeded{AfterUnknown: o.AfterUnknown, Fingerprint: "f"}), nil
		case Uncertain:
			return ledger.Event(messages.Uncertain, &messages.EnrollUncertain{Reason: o.Reason, AfterUnknown: o.AfterUnknown}), nil
		case RetryLater:
			o.wait = time.Until(o.NotBefore)
			return messages.Event{}, Defer(ctx, ledger, o.Result)
		}
		return ledger.Event(messages.Failed, &messages.FailedBody{Reason: o.Reason, AfterUnknown: o.AfterUnknown, Fingerprint: "f"}), nil
	})
	o.calls, o.looks, o.events = h.count("call")-calls, h.count("look")+h.count("fresh look")-looks, h.events()
	return o
}

func (h *harness) events() string {
	var all []string
	for _, e := range h.log.Events() {
		var body messages.FailedBody
		_ = messages.DecodeEvent(e.Body, &body)
		all = append(all, fmt.Sprintf("%s/%d", messages.StateOf(e.Subject), body.Attempt))
	}
	return strings.Join(all, " ")
}

// before stores what earlier deliveries left, and waits until the request comes back.
func (h *harness) before(t *testing.T, state string) {
	t.Helper()
	ledger := &history.History{Log: &h.log, Operation: messages.Enroll, ID: "r1", Fingerprint: "f"}
	in := func(d time.Duration) messages.Time { return messages.Time{Time: time.Now().Add(d)} }
	started := &messages.EnrollStarted{Deadline: in(timeout), Fingerprint: "f"}
	waits := &messages.DeferredBody{NotBefore: in(timeout)}
	ledger.Attempt = 1
	switch state {
	case "nothing":
		return
	case "interrupted":
		waits = nil
	case "busy":
		waits.Reason = messages.ReasonBusy
	case "busy after unknown":
		waits.Reason, waits.AfterUnknown = messages.ReasonBusy, true
	case "held":
		waits.Reason, waits.HeldCount = messages.ReasonHeld, 1
	case "held four times":
		waits.Reason, waits.HeldCount = messages.ReasonHeld, 4
	case "unknown":
		waits.Reason, waits.AfterUnknown = messages.ReasonNoAnswer, true
	default:
		t.Fatalf("no such state: %s", state)
	}
	if err := ledger.Store(t.Context(), messages.Started, started); err != nil {
		t.Fatal(err)
	}
	if waits != nil {
		if err := ledger.Store(t.Context(), messages.Deferred, waits); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(timeout)
	h.journal = nil
}

// journalIs compares what happened, in order.
func (h *harness) journalIs(t *testing.T, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, h.journal); diff != "" {
		t.Errorf("journal (-want +got):\n%s", diff)
	}
}

// occupy takes a slot for a while.
func (h *harness) occupy(t *testing.T, d time.Duration) {
	t.Helper()
	if err := h.caller.Slots.Take(t.Context()); err != nil {
		t.Error(err)
		return
	}
	time.AfterFunc(d, h.caller.Slots.Free)
}

// other is what another request observes.
func (h *harness) other(t *testing.T, id string, result error) {
	t.Helper()
	permit, err := h.hold.Acquire(t.Context())
	if err != nil {
		t.Error(err)
		return
	}
	defer permit.Release(false)
	permit.Admit(id)
	permit.Observe(hold.Call{Err: result})
}
