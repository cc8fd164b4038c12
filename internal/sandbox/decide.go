package sandbox

import (
	"errors"
	"fmt"
	"time"
)

// What a payer can decide on the page behind an enrollment's url.
const (
	Approve = "approve" // transaction Approved, mandate Active
	Decline = "decline" // transaction Failed, mandate Rejected
	Abandon = "cancel"  // transaction Cancelled, mandate Cancelled
	Expire  = "expire"  // the link expires now: transaction Expired, no callback
)

// ErrDecided says that an enrollment was decided before, or that its link expired.
var ErrDecided = errors.New("sandbox: already decided, or the link expired")

// decisions are the states of transaction and mandate that each leads to.
var decisions = map[string]struct{ tx, mandate uint8 }{
	Approve: {txApproved, mandateActive}, Decline: {txFailed, mandateRejected},
	Abandon: {txCancelled, mandateCancelled}, Expire: {txNew, mandateNew},
}

// Decide makes the payer's decision on the newest enrollment of an order number, and sends the callback in the background.
// The error is ErrDecided, or names the argument that is wrong.
func (s *Sandbox) Decide(orderNumber, decision string) error {
	s.registry.mu.Lock()
	n := int(s.registry.last[orderNumber]) - 1
	s.registry.mu.Unlock()
	if n < 0 {
		return fmt.Errorf("sandbox: no enrollment has the order number %q", orderNumber)
	}
	return s.decide(n, decision)
}

func (s *Sandbox) decide(n int, decision string) error {
	to, known := decisions[decision]
	if !known {
		return fmt.Errorf("sandbox: decision is %q, it must be %s, %s, %s or %s", decision, Approve, Decline, Abandon, Expire)
	}
	e, settled := s.registry.settle(n, to.tx, to.mandate, time.Duration(s.Settings().ListDelay))
	if !settled {
		return ErrDecided
	}
	s.logf("enrollment %d: %s", n+1, decision)
	if decision != Expire {
		s.callBack(n, e)
	}
	return nil
}
