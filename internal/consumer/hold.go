package consumer

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"errand/pkg/clients"
)

// exhaustedInARow is how many requests in a row must have run out of tries on a
// busy upstream before the fault is taken for the upstream's and not for theirs.
const exhaustedInARow = 3

// Hold stops a program's taking of work while the fault is the upstream's or the
// account's and not a request's: refused credentials, a suspended account, an
// exhausted quota, an upstream that is down. While it lasts, one request at a time
// goes through as a probe, one call at most every Interval; the first that works
// ends it. The zero value with an Interval is ready; it is safe for concurrent use.
type Hold struct {
	Interval time.Duration
	Log      zerolog.Logger

	mu        sync.Mutex
	why       string // "" while nothing is held
	byWrite   bool   // the call that began it changes something upstream
	since     time.Time
	next      time.Time     // no probe before
	worked    time.Time     // when a call that changes something worked last
	waiting   map[bool]bool // one worker waits for a request to probe with, of writes or of reads
	probing   bool          // one request is on its way as a probe
	exhausted int
	changed   chan struct{} // closed when anything above changes
}

// writes are the calls that change something upstream: their success proves more
// than that of a read.
var writes = map[string]bool{"enroll": true, "send": true}

// upstream names a call's service as an operator knows it, and the call.
func upstream(operation string) string {
	if operation == "enroll" || operation == "transactions" {
		return "mandate service (" + operation + ")"
	}
	return "email service (" + operation + ")"
}

// Saw is told of every call to the upstream.
func (h *Hold) Saw(c clients.Call) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.why != "" {
		h.next = time.Now().Add(max(h.Interval, min(c.RetryAfter, 15*time.Minute)))
	}
	switch c.Fate {
	case clients.Held:
		if !writes[c.Operation] && h.why == "" && time.Since(h.worked) < h.Interval {
			return // it is the reads that are not let in; they wait by themselves
		}
		h.begin(c.Operation, fmt.Sprintf("%s answers %d: credentials, account or quota", upstream(c.Operation), c.Status))
	case clients.Success, clients.Refused:
		h.exhausted = 0
		if writes[c.Operation] {
			h.worked = time.Now()
		}
		if h.why != "" && (writes[c.Operation] || !h.byWrite) {
			h.end("upstream works again")
		}
	case clients.Unknown:
		h.exhausted = 0 // it answers, if badly
	}
}

// Exhausted is told when a request ran out of tries on a busy upstream.
func (h *Hold) Exhausted(e *clients.Error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.exhausted++; h.exhausted < exhaustedInARow {
		return
	}
	why := upstream(e.Operation) + " cannot be reached"
	if e.Status != 0 {
		why = fmt.Sprintf("%s answers %d: overloaded or out of order", upstream(e.Operation), e.Status)
	}
	h.begin(e.Operation, why)
}

func (h *Hold) begin(operation, why string) {
	if h.why == "" {
		h.since = time.Now()
		h.next = h.since.Add(h.Interval)
		h.byWrite = writes[operation]
		h.Log.Warn().Str("why", why).Dur("probe_every", h.Interval).Msg("held: no more requests are taken until the upstream works")
	}
	h.byWrite = h.byWrite || writes[operation]
	h.why = why
	h.wake()
}

func (h *Hold) end(how string) {
	h.Log.Info().Str("how", how).Dur("lasted", time.Since(h.since)).Msg("hold ended")
	h.why, h.byWrite, h.exhausted = "", false, 0
	h.wake()
}

func (h *Hold) wake() {
	if h.changed != nil {
		close(h.changed)
		h.changed = nil
	}
}

// Active reports whether the program is held.
func (h *Hold) Active() bool { return h.Why() != "" }

// Why says what the program is held for; "" when it is not.
func (h *Hold) Why() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.why
}

// Enter waits until a message may be asked for: at once when nothing is held, else
// when the next probe is due, one worker of each queue at a time (turn): an empty queue
// must not keep the other one from probing. A queue of reads cannot probe a hold that a
// write began. The error is the context's.
func (h *Hold) Enter(ctx context.Context, write bool) (turn bool, err error) {
	for {
		h.mu.Lock()
		if h.why == "" {
			h.mu.Unlock()
			return false, nil
		}
		wait := time.Until(h.next)
		if !h.waiting[write] && !h.probing && wait <= 0 && (write || !h.byWrite) {
			if h.waiting == nil {
				h.waiting = map[bool]bool{}
			}
			h.waiting[write] = true
			h.mu.Unlock()
			return true, nil
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
			return false, ctx.Err()
		}
	}
}

// Leave ends a turn. none: no request waits in the worker's queue, nor will one come
// back to it. A hold whose own queue has no request that could end it ends too: the next
// one finds out.
func (h *Hold) Leave(write, none bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waiting[write] = false
	if none && write == h.byWrite && h.why != "" {
		h.end("nothing waits for it")
		return
	}
	h.wake()
}

// Claim tells whether a request that was just taken may be worked on: always when
// nothing is held; else as the one probe (probe), if it is time for one. If not, it
// is to be put back for wait.
func (h *Hold) Claim(write bool) (probe bool, wait time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.why == "" {
		return false, 0
	}
	if wait = time.Until(h.next); h.probing || wait > 0 || h.byWrite && !write {
		return false, max(wait, h.Interval/4, time.Millisecond)
	}
	h.probing = true
	return true, 0
}

// Release ends a probe.
func (h *Hold) Release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.probing = false
	h.wake()
}
