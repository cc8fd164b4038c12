package sandbox

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// outbox holds every accepted message and the sending log made from them.
type outbox struct {
	mu       sync.Mutex
	seed     uint64
	messages []*posted
	pending  []*posted // messages with recipients that are not in the log yet
	log      []row     // by the time of the event, oldest first
	foreign  []foreignRow
	shuffled []int // the rows in no order, see listed
	lost     []lostRow
	drawn    uint64 // random numbers drawn for the log so far

	replies    map[string]int // by address: the code that mail to it is answered with
	seen       map[mailed]int // how often each was accepted
	twice      int            // of them accepted more than once
	recipients int64
	largest    int
}

// posted is an accepted message.
type posted struct {
	submission
	n        int       // counts from 1
	at       int64     // when it was accepted, milliseconds since 1970
	sentAt   int64     // when its first row enters the log, in milliseconds too
	logged   int       // recipients that are in the log
	settings *Settings // those at acceptance, which decide about its rows
	replies  map[string]int
}

// mailed is a recipient of messages with one subject.
type mailed struct{ subject, recipient string }

// accept queues a message, unless the number of requested recipients exceeds the quota.
func (o *outbox) accept(l *submission, asked int, settings *Settings, now time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.recipients+int64(asked) > settings.Quota {
		return false
	}
	for _, to := range l.to {
		one := mailed{l.subject, sameDomain(to)}
		if o.seen[one]++; o.seen[one] == 2 {
			o.twice++
		}
	}
	o.recipients += int64(len(l.to))
	o.largest = max(o.largest, asked)
	p := &posted{submission: *l, n: len(o.messages) + 1, at: now.UnixMilli(), settings: settings, replies: o.replies}
	p.sentAt = p.at + time.Duration(settings.LogDelay).Milliseconds()
	o.messages, o.pending = append(o.messages, p), append(o.pending, p)
	return true
}

// Reply has mail to an address, in whatever case, answered with a code: 550 bounces, 451 is delivered later; 0 forgets it.
func (s *Sandbox) Reply(address string, code int) {
	s.outbox.mu.Lock()
	defer s.outbox.mu.Unlock()
	s.outbox.replies[strings.ToLower(address)] = code
}

// reschedule applies a lowered log delay, not a raised one, to messages without a row in the log.
func (o *outbox) reschedule(delay time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	o.appendDue(now)
	for _, p := range o.pending {
		if p.logged == 0 {
			p.sentAt = min(p.sentAt, max(now.UnixMilli(), p.at+delay.Milliseconds()))
		}
	}
}

// appendDue appends to the log what the outbound server has sent by now, by the time of the event. The caller holds the lock.
func (o *outbox) appendDue(now time.Time) {
	first := len(o.log)
	o.pending = slices.DeleteFunc(o.pending, func(p *posted) bool {
		for ; p.logged < len(p.to) && p.eventAt(p.logged) <= now.UnixMilli(); p.logged++ {
			o.log = append(o.log, row{message: uint32(p.n - 1), recipient: uint32(p.logged)})
		}
		return p.logged == len(p.to)
	})
	slices.SortStableFunc(o.log[first:], func(a, b row) int { return cmp.Compare(o.eventOf(a), o.eventOf(b)) })
}

// eventAt is when the outbound server sends to the i-th recipient.
func (p *posted) eventAt(i int) int64 {
	return p.sentAt + time.Duration(p.settings.LogSpread).Milliseconds()*int64(i)/int64(len(p.to))
}

// envelope is the message's envelope_id, which its rows share: 11 hex digits of the milliseconds since 1970 when it was
// accepted, and 7 that no other message has, since the factor is odd.
func (p *posted) envelope(seed uint64) string {
	return fmt.Sprintf("%011x%07x", p.at, (uint64(p.n)*0x5bd1e995+mix(seed))&0xfffffff)
}

func (o *outbox) used() int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.recipients
}
