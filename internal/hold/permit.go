package hold

import "context"

// Call is what came of one call.
type Call struct {
	Err       error // nil: it was answered well
	Exhausted bool  // it was the last try of a delivery
	// Suspect: the request met the same before while others succeeded, so that it says
	// nothing of the account.
	Suspect bool
}

// Permit goes with one delivery of a request. Its methods may be called by all who work on
// that request.
type Permit struct {
	hold    *Hold
	probe   bool
	used    bool // the probe made its call, or is to make none; guarded by the hold
	request string
}

// Admit names the request that was taken, and reports whether it may be worked on: not if a
// hold began meanwhile, nor if it was a probe of this hold already.
func (p *Permit) Admit(request string) bool {
	h := p.hold
	h.mu.Lock()
	defer h.mu.Unlock()
	p.request = request
	if h.why == "" || !p.probe {
		return h.why == ""
	}
	if p.used {
		return true // to be looked at, and not to be called
	}
	if _, before := h.probed[request]; before {
		return false
	}
	add(&h.probed, request)
	return true
}

// AdmitAgain admits a request that was a probe of this hold already: there is no other.
func (p *Permit) AdmitAgain(request string) {
	p.hold.mu.Lock()
	p.hold.probed = nil
	p.hold.mu.Unlock()
	p.Admit(request)
}

// Spent reports whether a hold lasts, and the permit may make no call any more.
func (p *Permit) Spent() bool {
	p.hold.mu.Lock()
	defer p.hold.mu.Unlock()
	return p.hold.why != "" && (!p.probe || p.used)
}

// Call asks for one call. *ActiveError: the operation is held, and it is not this one's
// probe, or the probe was made.
func (p *Permit) Call() error {
	h := p.hold
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.why == "" {
		return nil
	}
	if !p.probe || p.used {
		return &ActiveError{Why: h.why, Status: h.status}
	}
	p.used = true
	return nil
}

// Observe learns what came of a call.
func (p *Permit) Observe(c Call) { p.hold.observe(p.request, c) }

// Hold is the breaker of the permit's operation.
func (p *Permit) Hold() *Hold { return p.hold }

// Probe reports whether the permit is that of a probe.
func (p *Permit) Probe() bool { return p.probe }

// Release ends the permit.
func (p *Permit) Release() { p.release(func(*Hold) {}) }

// Unused ends the permit of a probe for which there was no request. empty: the queue has
// none at all that waits for the end of the hold, so it ends.
func (p *Permit) Unused(empty bool) {
	p.release(func(h *Hold) {
		if empty && h.why != "" {
			h.end("no request waits for it")
		}
	})
}

func (p *Permit) release(also func(*Hold)) {
	if !p.probe {
		return
	}
	h := p.hold
	h.mu.Lock()
	defer h.mu.Unlock()
	h.probing = false
	also(h)
	h.wake()
}

// Slots bound the calls under way at once, of all operations of a program together.
type Slots chan struct{}

// Take waits for a slot; the error is the context's cause.
func (s Slots) Take(ctx context.Context) error {
	select {
	case s <- struct{}{}:
		return nil
	default:
	}
	select {
	case s <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Free gives a slot back.
func (s Slots) Free() { <-s }
