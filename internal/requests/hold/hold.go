// Package hold is the circuit breaker of one operation: no requests are taken while a fault is surely not one request's.
//
//	open ── two requests in a row refused for the account, three out of tries, ──► held
//	  ▲     or three with calls of unknown fate, with no success between            │
//	  │                                                                             │ every Interval at most
//	  └──── a call is answered well ◄── one request, not twice the same ◄── a read that harms nobody
//
// A [Permit] goes with each delivery of a request: it says whether a call may be made, and observes what came of it.
//
//	hold.go    what an operation is held for, since when, and which failures in a row begin that
//	permit.go  who may probe and call meanwhile
package hold

import (
	"context"
	"errors"
	"fmt"
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
		h.postpone(c.Err)
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

// How many in a row begin a hold.
const (
	refusedRequests   = 2 // different ones, for credentials, account or address
	exhaustedRequests = 3 // different ones, out of tries on a busy upstream
	unknownRequests   = 3 // different ones, of unknown fate
)

// Call is what came of one call.
type Call struct {
	Err       error // nil if it was answered well
	Exhausted bool  // it was the last try of a delivery
	// Suspect is set if the request met the same before while others succeeded: it proves nothing about the account.
	Suspect bool
}

// counts are the failures in a row, since the last success.
type counts struct {
	refused   requests
	exhausted requests
	unknown   requests
}

// requests is a set of requests. It stays small: it begins a hold when it is full.
type requests map[string]struct{}

// add puts a request into the set and returns the set's size.
func (r *requests) add(request string) int {
	if *r == nil {
		*r = requests{}
	}
	(*r)[request] = struct{}{}
	return len(*r)
}

// add counts a failed call, and returns the fault to hold the service for, zero if it may be this request's alone.
func (n *counts) add(service, request string, c Call) fault {
	status := 0
	if e, ok := errors.AsType[*clients.Error](c.Err); ok {
		status = e.Status
	}
	switch fate := clients.FateOf(c.Err); {
	case fate == clients.Held && !c.Suspect:
		if n.refused.add(request) >= refusedRequests {
			return fault{why: fmt.Sprintf("%s answers %d: %s", service, status, faultOf(status)), cause: Refused, status: status}
		}
	case fate == clients.Busy && c.Exhausted:
		if n.exhausted.add(request) >= exhaustedRequests {
			if status == 0 {
				return fault{why: service + " cannot be reached", cause: Unreachable}
			}
			return fault{why: fmt.Sprintf("%s answers %d: overloaded or out of order", service, status), cause: Busy, status: status}
		}
	case fate == clients.Unknown:
		if n.unknown.add(request) >= unknownRequests {
			why := service + " gives no answer"
			if status != 0 {
				why = fmt.Sprintf("%s answers %d", service, status)
			}
			return fault{why: why + ": what its last calls did is unknown", cause: NoAnswer, status: status}
		}
	}
	return fault{}
}

// faultOf says what an operator should look at for a status that is not one request's fault.
func faultOf(status int) string {
	if status == 404 || status == 405 {
		return "is its address right?"
	}
	return "credentials, account or quota"
}
