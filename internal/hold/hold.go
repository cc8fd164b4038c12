// Package hold is the circuit breaker of one operation: it stops the taking of requests
// while the fault is surely not one request's, and finds out when it is over.
//
//	open ── two requests in a row refused for the account, three out of tries, ──► held
//	  ▲     or three calls in a row of unknown fate, with no success between        │
//	  │                                                                             │ every Interval at most
//	  └──── a call is answered well ◄── one request, not twice the same ◄── a read that harms nobody
//
// A [Permit] goes with each delivery of a request: it says whether a call may be made,
// and learns what came of it.
package hold

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"errand/internal/retry"
	"errand/pkg/clients"
)

// How many in a row begin a hold.
const (
	refusedRequests   = 2 // different ones, for credentials, account or address
	exhaustedRequests = 3 // different ones, out of tries on a busy upstream
	unknownCalls      = 3
)

// withoutRead is which probe in a row goes to a request although the read was refused as the
// requests were: some keys may write and not read.
const withoutRead = 60

// Hold is the breaker of one operation, safe for concurrent use.
type Hold struct {
	Service  string        // as an operator knows it: "email service (send)"
	Interval time.Duration // between two probes, at least
	// Read is a call that changes nothing, made before a request is risked; nil: there is none.
	Read func(context.Context) error
	Log  zerolog.Logger

	mu      sync.Mutex
	why     string // "" while nothing is held
	status  int    // of the call that began it
	since   time.Time
	next    time.Time           // no probe before
	probing bool                // a probe is under way
	account bool                // what began it is answered, and refused: the account's fault
	denied  int                 // reads in a row that were refused as well
	probed  map[string]struct{} // requests that were probes of this hold
	changed chan struct{}       // closed when any of the above changes

	refused   map[string]struct{} // requests in a row, since the last success
	exhausted map[string]struct{}
	unknown   int
	success   time.Time // of the last call that was answered well
}

// ActiveError is why a call may not be made now.
type ActiveError struct {
	Why    string
	Status int // that began the hold; 0: there was no answer
}

func (e *ActiveError) Error() string { return "held: " + e.Why }

// Why says what the operation is held for, and since when; "" when it is not.
func (h *Hold) Why() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.why == "" {
		return ""
	}
	return h.why + ", since " + h.since.UTC().Format(time.RFC3339)
}

// Active reports whether the operation is held.
func (h *Hold) Active() bool { return h.Why() != "" }

// SucceededSince reports whether a call was answered well since t.
func (h *Hold) SucceededSince(t time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.success.After(t)
}

// Acquire waits until a request may be taken: at once while nothing is held, else until a
// probe is due, and then for one caller at a time. Each permit must be released. The error
// is the context's.
func (h *Hold) Acquire(ctx context.Context) (*Permit, error) {
	for {
		h.mu.Lock()
		if h.why == "" {
			h.mu.Unlock()
			return &Permit{hold: h}, nil
		}
		wait := time.Until(h.next)
		if !h.probing && wait <= 0 {
			h.probing = true
			h.next = time.Now().Add(h.Interval)
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
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-changed:
		case <-t.C:
		}
		t.Stop()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
}

// readIsWell makes the harmless read of a probe. If it fails the probe is over.
func (h *Hold) readIsWell(ctx context.Context) bool {
	if h.Read == nil {
		return true
	}
	h.mu.Lock()
	request := h.denied == withoutRead-1
	if request {
		h.denied = 0
	}
	h.mu.Unlock()
	if request {
		return true
	}
	err := h.Read(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil {
		h.denied = 0
		return true
	}
	switch clients.FateOf(err) {
	case clients.Held, clients.Refused:
		if !h.account { // it answers again
			return true
		}
		h.denied++
	default:
		h.denied = 0
	}
	h.postpone(failure(err).RetryAfter)
	return false
}

// postpone sets when the next probe is due.
func (h *Hold) postpone(asked time.Duration) {
	h.next = time.Now().Add(max(h.Interval, min(asked, retry.RetryAfterMax)))
}

func (h *Hold) begin(why string, status int, account bool) {
	if h.why == "" {
		h.since = time.Now()
		h.next = h.since.Add(h.Interval)
		h.probed, h.denied = nil, 0
		h.Log.Warn().Str("why", why).Dur("probe_every", h.Interval).Msg("held: no more requests are taken until the upstream works")
	}
	h.why, h.status, h.account = why, status, account
	h.wake()
}

func (h *Hold) end(how string) {
	h.Log.Info().Str("service", h.Service).Str("how", how).Dur("lasted", time.Since(h.since)).Msg("hold ended")
	h.why = ""
	h.reset()
	h.wake()
}

// reset forgets what was counted in a row.
func (h *Hold) reset() { h.refused, h.exhausted, h.unknown = nil, nil, 0 }

func (h *Hold) wake() {
	if h.changed != nil {
		close(h.changed)
		h.changed = nil
	}
}

// observe learns what came of a call.
func (h *Hold) observe(request string, c Call) {
	h.mu.Lock()
	defer h.mu.Unlock()
	fate := clients.FateOf(c.Err)
	if fate == clients.Success || fate == clients.Refused {
		h.success = time.Now()
		h.reset()
		if h.why != "" {
			h.end("the upstream answers again")
		}
		return
	}
	if h.why != "" {
		h.postpone(failure(c.Err).RetryAfter)
	}
	switch status := failure(c.Err).Status; {
	case fate == clients.Held && !c.Suspect:
		if add(&h.refused, request) >= refusedRequests {
			h.begin(fmt.Sprintf("%s answers %d: %s", h.Service, status, faultOf(status)), status, true)
		}
	case fate == clients.Busy && c.Exhausted:
		if add(&h.exhausted, request) >= exhaustedRequests {
			why := h.Service + " cannot be reached"
			if status != 0 {
				why = fmt.Sprintf("%s answers %d: overloaded or out of order", h.Service, status)
			}
			h.begin(why, status, false)
		}
	case fate == clients.Unknown:
		if h.unknown++; h.unknown >= unknownCalls {
			why := h.Service + " gives no answer"
			if status != 0 {
				why = fmt.Sprintf("%s answers %d", h.Service, status)
			}
			h.begin(why+": what its last calls did is unknown", status, false)
		}
	}
}

// faultOf says what an operator should look at for a status that is not one request's fault.
func faultOf(status int) string {
	if status == 404 || status == 405 {
		return "is its address right?"
	}
	return "credentials, account or quota"
}

// add puts a request into a set and gives the set's size. The sets stay small: they
// begin a hold when they are full.
func add(set *map[string]struct{}, request string) int {
	if *set == nil {
		*set = map[string]struct{}{}
	}
	(*set)[request] = struct{}{}
	return len(*set)
}

// failure is what is known of a failed call; the zero value for any other error.
func failure(err error) clients.Error {
	if e, ok := errors.AsType[*clients.Error](err); ok {
		return *e
	}
	return clients.Error{}
}
