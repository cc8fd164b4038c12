// Package hold is the circuit breaker of one operation: no requests are taken while a fault is surely not one request's.
//
//	open ── two requests in a row refused for the account, three out of tries, ──► held
//	  ▲     or three calls in a row of unknown fate, with no success between        │
//	  │                                                                             │ every Interval at most
//	  └──── a call is answered well ◄── one request, not twice the same ◄── a read that harms nobody
//
// A [Permit] goes with each delivery of a request: it says whether a call may be made, and observes what came of it.
//
//	hold.go    what an operation is held for, and since when
//	counts.go  which failures in a row begin that
//	permit.go  who may probe and call meanwhile
package hold

import (
	"context"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"errand/pkg/clients"
)

// Hold is the breaker of one operation, safe for concurrent use.
type Hold struct {
	Service  string        // as an operator knows it: "email service (send)"
	Interval time.Duration // between two probes, at least
	// Read, if set, is a call that changes nothing, made before a request is risked.
	Read func(context.Context) error
	Log  zerolog.Logger
	// Began, if set, is called with the cause of each hold that begins. It must not use the hold.
	Began func(Cause)

	mu      sync.Mutex
	counts  counts
	success time.Time // of the last call that was answered well
	fault   fault     // what is held for
	probes  probes
	changed chan struct{} // closed when the fault or the probes change
}

// Cause says what kind of fault an operation is held for: a closed set.
type Cause string

// The causes.
const (
	Refused     Cause = "refused"     // credentials, account, quota or address
	Busy        Cause = "busy"        // it answers that it cannot
	Unreachable Cause = "unreachable" // it cannot be connected to
	NoAnswer    Cause = "no_answer"   // its last calls have an unknown fate
)

// Causes are all causes.
var Causes = []Cause{Refused, Busy, Unreachable, NoAnswer}

// fault is what an operation is held for.
type fault struct {
	why    string // "" if nothing is held
	cause  Cause
	status int // of the call that began it; 0 without an answer
	since  time.Time
}

// ActiveError is why a call may not be made now.
type ActiveError struct {
	Why    string
	Status int // of the call that began the hold; 0 without an answer
}

func (e *ActiveError) Error() string { return "held: " + e.Why }

// Why says what the operation is held for, and since when; "" when it is not.
func (h *Hold) Why() string {
	why, since := h.Held()
	if why == "" {
		return ""
	}
	return why + ", since " + since.UTC().Format(time.RFC3339)
}

// Held is Why with the time by itself.
func (h *Hold) Held() (why string, since time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.fault.why, h.fault.since
}

// Active reports whether the operation is held.
func (h *Hold) Active() bool { return h.Why() != "" }

func (h *Hold) held() bool { return h.fault.why != "" }

// SucceededSince reports whether a call was answered well since t.
func (h *Hold) SucceededSince(t time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.success.After(t)
}

// observe notes what came of a call.
func (h *Hold) observe(request string, c Call) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if fate := clients.FateOf(c.Err); fate == clients.Success || fate == clients.Refused {
		h.success, h.counts = time.Now(), counts{}
		if h.held() {
			h.end("the upstream answers again")
		}
		return
	}
	if h.held() {
		h.postpone(failure(c.Err).RetryAfter)
	}
	if f := h.counts.add(h.Service, request, c); f.why != "" {
		h.begin(f)
	}
}

// begin holds the operation, or says what it is held for now.
func (h *Hold) begin(f fault) {
	f.since = h.fault.since
	if !h.held() {
		f.since = time.Now()
		h.probes = probes{next: f.since.Add(h.Interval), active: h.probes.active}
		if h.Began != nil {
			h.Began(f.cause)
		}
		h.Log.Warn().Str("why", f.why).Str("cause", string(f.cause)).Dur("probe_every", h.Interval).
			Msg("held: no more requests are taken until the upstream works")
	}
	h.fault = f
	h.wake()
}

func (h *Hold) end(how string) {
	h.Log.Info().Str("service", h.Service).Str("how", how).Dur("lasted", time.Since(h.fault.since)).Msg("hold ended")
	h.fault, h.counts = fault{}, counts{}
	h.wake()
}

func (h *Hold) wake() {
	if h.changed != nil {
		close(h.changed)
		h.changed = nil
	}
}
