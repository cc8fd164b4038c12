package sandbox

import (
	"errors"
	"fmt"
)

// Decisions of a payer at the page behind an enrollment's url.
const (
	Approve = "approve" // transaction Approved, mandate Active
	Decline = "decline" // transaction Failed, mandate Rejected
	Abandon = "cancel"  // transaction Cancelled, mandate Cancelled
)

// ErrDecided says that an enrollment was decided before, or its link expired.
var ErrDecided = errors.New("sandbox: decided before, or the link expired")

// Decide is the payer of an order number's newest enrollment deciding on it.
// The callback follows beside the caller. The error is ErrDecided, or names
// what is wrong with the arguments.
func (s *Sandbox) Decide(orderNumber, decision string) error {
	s.ledger.mu.Lock()
	n := int(s.ledger.last[orderNumber]) - 1
	s.ledger.mu.Unlock()
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
	e, settled := s.ledger.settle(n, tx, mandate)
	if !settled {
		return ErrDecided
	}
	s.logf("enrollment %d: %s", n+1, decision)
	s.callBack(n, e)
	return nil
}
