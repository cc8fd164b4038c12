// Package hold is the circuit breaker of one operation: no requests are taken while a fault is surely not one request's.
//
//	open ── two requests in a row refused for the account, three out of tries, ──► held
//	  ▲     or three with calls of unknown fate, with no success between            │
//	  │                                                                             │ every Interval at most
//	  └──── a call is answered well ◄── one request, not twice the same ◄── a read that harms nobody
//
// A [Permit] goes with each delivery of a request: it says whether a call may be made, and observes what came of it.
package hold

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"errand/internal/retry"
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
	status int // of the call that showed it last; 0 without an answer
	since  time.Time
}

// ActiveError is why a call may not be made now.
type ActiveError struct {
	Why    string
	Status int // of the call that showed it last; 0 without an answer
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

// Doubt says that no call was answered well, of too few requests to hold the operation; "" if none was lately, or it is held.
func (h *Hold) Doubt() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := h.counts; h.held() || len(n.refused)+len(n.exhausted) == 0 || time.Since(n.last) > 2*retry.Longest { // they waited Longest
		return ""
	}
	return fmt.Sprintf("%s has answered no call well since %s", h.Service, h.counts.first.UTC().Format(time.RFC3339))
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
		h.failed(c.Err)
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
		h.Log.Warn().Str("why", f.why).Str("cause", string(f.cause)).Dur("probe_every_ms", h.Interval).
			Msg("held: no more requests are taken until the upstream works")
	}
	h.fault = f
	h.wake()
}

func (h *Hold) end(how string) {
	h.Log.Info().Str("service", h.Service).Str("how", how).Dur("lasted_ms", time.Since(h.fault.since)).Msg("hold ended")
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
	// first and last are when one of the first two kinds was counted.
	first, last time.Time
}

// turnedAway notes when a call was.
func (n *counts) turnedAway(by *requests, request string) int {
	n.last = time.Now()
	if n.first.IsZero() {
		n.first = n.last
	}
	return by.add(request)
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
	f := faultOf(service, c.Err)
	switch {
	case f.cause == Refused && !c.Suspect && n.turnedAway(&n.refused, request) >= refusedRequests,
		(f.cause == Busy || f.cause == Unreachable) && c.Exhausted && n.turnedAway(&n.exhausted, request) >= exhaustedRequests,
		f.cause == NoAnswer && n.unknown.add(request) >= unknownRequests:
		return f
	}
	return fault{}
}

const doneUnknown = ": what its last calls did is unknown"

// faultOf is the fault that a failed call shows; zero if it is none of the service's.
func faultOf(service string, err error) fault {
	status := 0
	if e, ok := errors.AsType[*clients.Error](err); ok {
		status = e.Status
	}
	answers := fmt.Sprintf("%s answers %d", service, status)
	switch fate := clients.FateOf(err); {
	case fate == clients.Held && (status == 404 || status == 405):
		return fault{why: answers + ": is its address right?", cause: Refused, status: status}
	case fate == clients.Held:
		return fault{why: answers + ": credentials, account or quota", cause: Refused, status: status}
	case fate == clients.Busy && status == 0:
		return fault{why: service + " cannot be reached", cause: Unreachable}
	case fate == clients.Busy:
		return fault{why: answers + ": overloaded or out of order", cause: Busy, status: status}
	case fate == clients.Unknown && status == 0:
		return fault{why: service + " gives no answer" + doneUnknown, cause: NoAnswer}
	case fate == clients.Unknown:
		return fault{why: answers + doneUnknown, cause: NoAnswer, status: status}
	}
	return fault{}
}

// withoutRead is which probe in a row goes to a request although the read was refused: some keys may write and not read.
const withoutRead = 60

type probes struct {
	next   time.Time // none before
	active bool      // one is under way
	denied int       // reads in a row that were refused as the requests were
	made   requests  // which were probes of this hold
	risked int       // calls made while the last calls' fates were unknown
}

// Acquire waits until a request may be taken: at once while nothing is held, else until a probe is due, and then for
// one caller at a time. Each permit must be released. The error is the context's.
func (h *Hold) Acquire(ctx context.Context) (*Permit, error) {
	for {
		h.mu.Lock()
		if !h.held() {
			h.mu.Unlock()
			return h.Permit(), nil
		}
		wait := time.Until(h.probes.next)
		if !h.probes.active && wait <= 0 {
			h.probes.active = true
			h.postpone(nil)
			h.mu.Unlock()
			// Without a good answer nothing is called, but what is overdue may end.
			return &Permit{hold: h, probe: true, used: !h.readIsWell(ctx)}, nil
		}
		if wait <= 0 {
			wait = h.Interval // until something changes
		}
		if h.changed == nil {
			h.changed = make(chan struct{})
		}
		changed := h.changed
		h.mu.Unlock()
		retry.PauseUntil(ctx, changed, wait)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
}

// Permit is the permit of a request that was taken while nothing was held.
func (h *Hold) Permit() *Permit { return &Permit{hold: h} }

// readIsWell makes the harmless read of a probe. If it fails the probe is over.
func (h *Hold) readIsWell(ctx context.Context) bool {
	h.mu.Lock()
	skips := h.probes.denied == withoutRead-1
	if skips {
		h.probes.denied = 0
	}
	h.mu.Unlock()
	if h.Read == nil || skips {
		return true
	}
	err := h.Read(ctx)
	fate := clients.FateOf(err)
	refused := fate == clients.Held || fate == clients.Refused
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case refused && h.fault.cause != Refused: // it answers again
		return true
	case refused:
		h.probes.denied++
	default:
		h.probes.denied = 0
	}
	if err != nil {
		h.failed(err)
	}
	return err == nil
}

// failed notes how a probe failed: a service that refused the key may be down or hang now. One of unknown fate, perhaps a read's,
// does not say what calls did.
func (h *Hold) failed(err error) {
	h.postpone(err)
	if f := faultOf(h.Service, err); f.why != "" {
		if h.fault.cause != NoAnswer {
			f.why = strings.TrimSuffix(f.why, doneUnknown)
		}
		h.fault.why, h.fault.status = f.why, f.status
	}
}

// postpone sets when the next probe is due, after one that failed with err. Where calls have an unknown fate a probe uses
// its request up: each doubles the interval.
func (h *Hold) postpone(err error) {
	interval := retry.Schedule{First: h.Interval, Max: max(h.Interval, retry.Longest)}.Wait(1 + h.probes.risked)
	h.probes.next = time.Now().Add(max(interval, retry.Asked(err)))
}

// Permit goes with one delivery of a request. Its methods are safe for concurrent use.
type Permit struct {
	hold    *Hold
	probe   bool
	used    bool // the probe made its call, or may not make one; guarded by the hold
	request string
}

// Admit names the request that was taken, and reports whether it may be worked on: no hold began, and it was not a probe before.
func (p *Permit) Admit(request string) bool {
	h := p.hold
	h.mu.Lock()
	defer h.mu.Unlock()
	p.request = request
	if !h.held() || !p.probe {
		return !h.held()
	}
	if p.used {
		return true // it may end, but not call
	}
	_, before := h.probes.made[request]
	h.probes.made.add(request)
	return !before
}

// AdmitAgain admits a request that was already a probe of this hold: there is no other.
func (p *Permit) AdmitAgain(request string) {
	p.hold.mu.Lock()
	p.hold.probes.made = nil
	p.hold.mu.Unlock()
	p.Admit(request)
}

// Spent reports whether a hold lasts and the permit may no longer make a call.
func (p *Permit) Spent() bool {
	p.hold.mu.Lock()
	defer p.hold.mu.Unlock()
	return p.spent()
}

func (p *Permit) spent() bool { return p.hold.held() && (!p.probe || p.used) }

// Call asks to make one call. *ActiveError means that the operation is held, and this is not a probe that may call.
func (p *Permit) Call() error {
	h := p.hold
	h.mu.Lock()
	defer h.mu.Unlock()
	if p.spent() {
		return &ActiveError{Why: h.fault.why, Status: h.fault.status}
	}
	p.used = p.used || h.held()
	if h.fault.cause == NoAnswer {
		h.probes.risked++
	}
	return nil
}

// Observe notes what came of a call.
func (p *Permit) Observe(c Call) { p.hold.observe(p.request, c) }

// SucceededSince reports whether a call of the permit's operation was answered well since t.
func (p *Permit) SucceededSince(t time.Time) bool {
	p.hold.mu.Lock()
	defer p.hold.mu.Unlock()
	return p.hold.success.After(t)
}

// Probe reports whether the permit is for a probe.
func (p *Permit) Probe() bool { return p.probe }

// Release ends the permit. If a probe found its queue empty the hold ends: no request waits for it.
func (p *Permit) Release(empty bool) {
	if !p.probe {
		return
	}
	h := p.hold
	h.mu.Lock()
	defer h.mu.Unlock()
	h.probes.active = false
	if empty && h.held() {
		h.end("no request waits for it")
	}
	h.wake()
}
