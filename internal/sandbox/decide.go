package sandbox

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"
)

// What a payer can decide on the page behind an enrollment's url.
const (
	Approve = "approve" // transaction Approved, mandate Active
	Decline = "decline" // transaction Failed, mandate Rejected
	Abandon = "cancel"  // transaction Cancelled, mandate Cancelled
	Expire  = "expire"  // the link expires now: transaction Expired, no callback
)

// What becomes of a mandate later, at once and without a callback.
const (
	End    = "end"    // Active -> Terminated
	Resume = "resume" // Terminated -> Active: a state that returns
)

// ErrDecided says that an enrollment was decided before, or that its link expired, or that its mandate is in another state.
var ErrDecided = errors.New("sandbox: already decided, or the link expired, or the mandate is in another state")

// decisions are the states of transaction and mandate that each leads to.
var decisions = map[string]struct{ tx, mandate uint8 }{
	Approve: {txApproved, mandateActive}, Decline: {txFailed, mandateRejected},
	Abandon: {txCancelled, mandateCancelled}, Expire: {txNew, mandateNew},
}

// Decide makes the payer's decision on the newest enrollment of an order number, and sends the callback in the background. It also
// ends its mandate, or lets it go on.
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
	switch {
	case decision == End && s.registry.change(n, mandateActive, mandateTerminated),
		decision == Resume && s.registry.change(n, mandateTerminated, mandateActive):
		return nil
	case decision == End || decision == Resume:
		return ErrDecided
	case !known:
		return fmt.Errorf("sandbox: decision is %q, it must be %s, %s, %s, %s, %s or %s", decision, Approve, Decline, Abandon, Expire, End,
			Resume)
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

// deduction is a charge on an active mandate. Its number is its index in the registry.
type deduction struct {
	enrollment uint32 // its number
	cycle      uint32 // from 1, of the sandbox as a whole
	at         int64  // milliseconds since 1970
	status     uint8
}

// Cycle makes the deductions of the next collection cycle, one for each active mandate; bounced are the order numbers whose
// deductions fail. It returns how many were made, failed ones included. The error names an order number without an active
// mandate. The document shows how a deduction is listed but for its states; how it comes about is assumed.
func (s *Sandbox) Cycle(bounced ...string) (made, failed int, err error) {
	l := &s.registry
	l.mu.Lock()
	defer l.mu.Unlock()
	active := map[string]bool{}
	for i := range l.rows {
		if l.rows[i].mandate == mandateActive {
			active[l.rows[i].order] = true
		}
	}
	for _, order := range bounced {
		if !active[order] {
			return 0, 0, fmt.Errorf("sandbox: no active mandate has the order number %q", order)
		}
	}
	l.cycle++
	for n := range l.rows {
		e := &l.rows[n]
		if e.mandate != mandateActive {
			continue
		}
		d := deduction{uint32(n), l.cycle, time.Now().UnixMilli(), txApproved}
		if slices.Contains(bounced, e.order) {
			d.status = txFailed
			failed++
		}
		l.deductions = append(l.deductions, d)
		l.listed = append(l.listed, -int32(len(l.deductions)))
		made++
	}
	s.logf("cycle %d: %d deductions, %d failed", l.cycle, made, failed)
	return made, failed, nil
}

// postCycle takes {"bounced": ["DD001"]}, or nothing.
func (s *Sandbox) postCycle(r *http.Request) (any, error) {
	var asked struct {
		Bounced []string `json:"bounced"`
	}
	if err := controlBody(r, &asked); err != nil && !errors.Is(err, io.EOF) { // of an empty body
		return nil, err
	}
	made, failed, err := s.Cycle(asked.Bounced...)
	return map[string]int{"deductions": made, "failed": failed}, err
}
