package hold

import (
	"context"
	"time"

	"errand/internal/retry"
	"errand/pkg/clients"
)

// withoutRead is which probe in a row goes to a request although the read was refused as the
// requests were: some keys may write and not read.
const withoutRead = 60

// probes are those of one hold.
type probes struct {
	next   time.Time // none before
	active bool      // one is under way
	denied int       // reads in a row that were refused as the requests were
	made   requests  // that were probes of this hold
}

// Acquire waits until a request may be taken: at once while nothing is held, else until a
// probe is due, and then for one caller at a time. Each permit must be released. The error
// is the context's.
func (h *Hold) Acquire(ctx context.Context) (*Permit, error) {
	for {
		h.mu.Lock()
		if !h.held() {
			h.mu.Unlock()
			return &Permit{hold: h}, nil
		}
		wait := time.Until(h.probes.next)
		if !h.probes.active && wait <= 0 {
			h.probes.active = true
			h.postpone(0)
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
	case refused && !h.fault.account: // it answers again
		return true
	case refused:
		h.probes.denied++
	default:
		h.probes.denied = 0
	}
	if err != nil {
		h.postpone(failure(err).RetryAfter)
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

// postpone sets when the next probe is due.
func (h *Hold) postpone(asked time.Duration) {
	h.probes.next = time.Now().Add(max(h.Interval, min(asked, retry.RetryAfterMax)))
}
