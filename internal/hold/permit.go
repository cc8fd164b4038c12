package hold

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
	if !h.held() || !p.probe {
		return !h.held()
	}
	if p.used {
		return true // to be looked at, and not to be called
	}
	_, before := h.probes.made[request]
	h.probes.made.add(request)
	return !before
}

// AdmitAgain admits a request that was a probe of this hold already: there is no other.
func (p *Permit) AdmitAgain(request string) {
	p.hold.mu.Lock()
	p.hold.probes.made = nil
	p.hold.mu.Unlock()
	p.Admit(request)
}

// Spent reports whether a hold lasts, and the permit may make no call any more.
func (p *Permit) Spent() bool {
	p.hold.mu.Lock()
	defer p.hold.mu.Unlock()
	return p.spent()
}

func (p *Permit) spent() bool { return p.hold.held() && (!p.probe || p.used) }

// Call asks for one call. *ActiveError: the operation is held, and it is not this one's
// probe, or the probe was made.
func (p *Permit) Call() error {
	h := p.hold
	h.mu.Lock()
	defer h.mu.Unlock()
	if p.spent() {
		return &ActiveError{Why: h.fault.why, Status: h.fault.status}
	}
	p.used = p.used || h.held()
	return nil
}

// Observe learns what came of a call.
func (p *Permit) Observe(c Call) { p.hold.observe(p.request, c) }

// Hold is the breaker of the permit's operation.
func (p *Permit) Hold() *Hold { return p.hold }

// Probe reports whether the permit is that of a probe.
func (p *Permit) Probe() bool { return p.probe }

// Release ends the permit.
func (p *Permit) Release() { p.Unused(false) }

// Unused ends the permit of a probe for which there was no request. empty: the queue has
// none at all that waits for the end of the hold, so it ends.
func (p *Permit) Unused(empty bool) {
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
