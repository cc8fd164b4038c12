package sandbox

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Status codes of a transaction. That an enrollment without a decision is listed, as New, is assumed.
const (
	txNew       = 0
	txFailed    = 2
	txApproved  = 3
	txCancelled = 4
	txExpired   = 5
)

// Status codes of a mandate.
const (
	mandateNew        = 0
	mandateActive     = 3
	mandateTerminated = 4
	mandateRejected   = 6
	mandateCancelled  = 7
)

var txLabels = map[uint8]string{txNew: "New", txFailed: "Failed", txApproved: "Approved", txCancelled: "Cancelled", txExpired: "Expired"}

var mandateLabels = map[uint8]string{mandateNew: "New", mandateActive: "Active", mandateTerminated: "Terminated",
	mandateRejected: "Rejected", mandateCancelled: "Cancelled"}

// enrollment is an accepted enrollment, with its mandate and its transaction. Its number is its index in the registry.
type enrollment struct {
	order   string
	body    string // as it was posted
	at      int64  // milliseconds since 1970
	expires int64  // when its link does, in milliseconds too
	decided int64  // when the list shows the decision
	cents   int64
	before  uint32 // number + 1 of the previous enrollment with the same order number; 0 means that this is the first
	tx      uint8
	mandate uint8
}

// registry holds every accepted enrollment. The upstream has no idempotency: one order number may have several.
type registry struct {
	mu    sync.Mutex
	rows  []enrollment
	last  map[string]uint32 // order number -> number + 1 of its last enrollment
	twice map[string]int    // order number with more than one enrollment -> how many

	deductions []deduction
	cycle      uint32  // the last one
	listed     []int32 // the records in the order of their making: n+1 of an enrollment, -(n+1) of a deduction
}

// add stores an accepted enrollment and returns its number.
func (l *registry) add(e enrollment) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	e.before = l.last[e.order]
	if e.before > 0 {
		l.twice[e.order] = max(l.twice[e.order], 1) + 1
	}
	l.rows = append(l.rows, e)
	l.last[e.order] = uint32(len(l.rows))
	l.listed = append(l.listed, int32(len(l.rows)))
	return len(l.rows) - 1
}

// get returns the enrollment of that number.
func (l *registry) get(number int) (enrollment, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if number < 0 || number >= len(l.rows) {
		return enrollment{}, false
	}
	return l.rows[number], true
}

// of returns the numbers of an order number's enrollments, newest first. The caller holds the lock.
func (l *registry) of(order string) []int {
	var numbers []int
	for at := l.last[order]; at > 0; at = l.rows[at-1].before {
		numbers = append(numbers, int(at)-1)
	}
	return numbers
}

// settle stores the decision on an enrollment, listed after a delay, and returns it; txNew means that its link expires.
// settled is false when it was decided before, or its link expired.
func (l *registry) settle(number int, tx, mandate uint8, delay time.Duration) (e enrollment, settled bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	row, now := &l.rows[number], time.Now()
	if row.tx != txNew || row.status(now) != txNew {
		return *row, false
	}
	row.tx, row.mandate, row.decided = tx, mandate, now.Add(delay).UnixMilli()
	if tx == txNew {
		row.expires = now.UnixMilli()
	}
	return *row, true
}

// change changes the state of a mandate, if it is in another one.
func (l *registry) change(number int, from, to uint8) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	row := &l.rows[number]
	if row.mandateStatus(time.Now()) != from {
		return false
	}
	row.mandate = to
	return true
}

// status is the transaction's status as it is listed: a new one expires with its link.
func (e *enrollment) status(now time.Time) uint8 {
	switch at := now.UnixMilli(); {
	case e.tx == txNew && at >= e.expires:
		return txExpired
	case at < e.decided:
		return txNew
	}
	return e.tx
}

// mandateStatus is the mandate's status as it is listed.
func (e *enrollment) mandateStatus(now time.Time) uint8 {
	if now.UnixMilli() < e.decided {
		return mandateNew
	}
	return e.mandate
}

// values parses the posted body each time: keeping the body takes less memory than keeping the values.
func (e *enrollment) values() values {
	v, _ := parseEnrollment(e.body)
	return v
}

// amount is what each deduction charges.
func (e *enrollment) amount() json.RawMessage { return json.RawMessage(decimal(e.cents)) }

// decimal writes hundredths as the shortest decimal number.
func decimal(hundredths int64) string {
	return strconv.FormatFloat(float64(hundredths)/100, 'f', -1, 64)
}

func number(prefix string, n int) string { return fmt.Sprintf("%s%08d", prefix, n+1) }

// token is the last part of an enrollment's url. It contains the number, and cannot be guessed from another token.
func (s *Sandbox) token(n int) string {
	return fmt.Sprintf("%x-%016x", n+1, mix(uint64(n+1)^mix(s.o.Seed^0x6572)))
}

// enrollmentOf returns the enrollment of a token, and its number.
func (s *Sandbox) enrollmentOf(token string) (number int, e enrollment, known bool) {
	head, _, _ := strings.Cut(token, "-")
	n, _ := strconv.ParseInt(head, 16, 32) // what is not a number makes another token
	number = int(n) - 1
	e, known = s.registry.get(number)
	return number, e, known && token == s.token(number)
}

// mix spreads the bits of x over the whole word (the finisher of splitmix64).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// fraction is what the bits of x are of all that a word can hold: at least 0 and less than 1.
func fraction(x uint64) float64 { return float64(x>>11) / (1 << 53) }
