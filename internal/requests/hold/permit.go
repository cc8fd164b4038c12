package hold

import (
	"context"
	"time"

	"errand/internal/retry"
	"errand/pkg/clients"
)

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
	if h.Read == nil || h.skipsRead() {
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
		h.postpone(err)
	}
	return err == nil
}

func (h *Hold) skipsRead() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	skips := h.probes.denied == withoutRead-1
	if skips {
		h.probes.denied = 0
	}
	return skips
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

// Admit names the request that was taken, and reports whether it may be worked on: no hold began, and it was no probe before.
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

// Hold is the breaker of the permit's operation.
func (p *Permit) Hold() *Hold { return p.hold }

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
