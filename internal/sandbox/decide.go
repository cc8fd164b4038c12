package sandbox

import (
	"errors"
	"fmt"
)

// What a payer can decide on the page behind an enrollment's url.
const (
	Approve = "approve" // transaction Approved, mandate Active
	Decline = "decline" // transaction Failed, mandate Rejected
	Abandon = "cancel"  // transaction Cancelled, mandate Cancelled
)

// ErrDecided says that an enrollment was decided before, or that its link expired.
var ErrDecided = errors.New("sandbox: already decided, or the link expired")

// Decide makes the payer's decision on the newest enrollment of an order number.
// The callback is sent in the background. The error is ErrDecided, or names the
// argument that is wrong.
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
	var tx, mandate uint8
	switch decision {
	case Approve:
		tx, mandate = txApproved, mandateActive
	case Decline:
		tx, mandate = txFailed, mandateRejected
	case Abandon:
		tx, mandate = txCancelled, mandateCancelled
	default:
		return fmt.Errorf("sandbox: decision is %q, it must be %s, %s or %s", decision, Approve, Decline, Abandon)
	}
	e, settled := s.registry.settle(n, tx, mandate)
	if !settled {
		return ErrDecided
	}
	s.logf("enrollment %d: %s", n+1, decision)
	s.callBack(n, e)
	return nil
}
