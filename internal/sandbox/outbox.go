package sandbox

import (
	"container/heap"
	"fmt"
	"hash/maphash"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"
)

// outbox holds every accepted message and the sending log made from them.
type outbox struct {
	mu       sync.Mutex
	seed     uint64
	messages []*posted
	pending  queue // messages with recipients that are not in the log yet
	log      []row // by the time of the event, oldest first
	foreign  []foreignRow
	shuffled shuffle
	lost     []lostRow
	drawn    uint64 // random numbers drawn for the log so far

	seen       map[uint64]place    // (subject, recipient) -> how often, and where first
	twice      map[uint64]Received // those accepted more than once
	subjects   map[string]uint64   // subject -> its hash
	count      int                 // accepted messages, also when a lean sandbox does not keep them
	recipients int64
	largest    int

	refused atomic.Int64
}

// posted is an accepted message.
type posted struct {
	submission
	n        int       // counts from 1
	at       int64     // when it was accepted, milliseconds since 1970
	sentAt   int64     // when its first row enters the log, in milliseconds too
	logged   int       // recipients that are in the log
	settings *Settings // those at acceptance, which decide about its rows
}

// place is where a pair of subject and recipient was first accepted.
type place struct {
	count, recipient, message uint32
}

func (o *outbox) reset(seed uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.seed = seed
	o.messages, o.pending, o.log, o.foreign, o.shuffled = nil, nil, nil, nil, shuffle{}
	o.seen, o.twice, o.subjects = map[uint64]place{}, map[uint64]Received{}, map[string]uint64{}
	o.count, o.recipients, o.largest = 0, 0, 0
	o.lost, o.drawn = nil, 0
	o.refused.Store(0)
}

// accept queues a message, unless the number of requested recipients exceeds the quota.
func (o *outbox) accept(l *submission, asked int, settings *Settings, lean bool, now time.Time) bool {
	subject := maphash.String(pairs, l.subject)
	keys := make([]uint64, l.to.len())
	for i := range keys {
		keys[i] = pair(subject, l.to.at(i))
	}

	o.mu.Lock()
	defer o.mu.Unlock()
	if o.recipients+int64(asked) > settings.Quota {
		return false
	}
	message := uint32(len(o.messages))
	o.subjects[l.subject] = subject
	for i, key := range keys {
		known, again := o.seen[key]
		if again {
			o.twice[key] = Received{l.subject, l.to.at(i), int(known.count) + 1}
		} else {
			known.message, known.recipient = message, uint32(i)
		}
		known.count++
		o.seen[key] = known
	}
	o.count++
	o.recipients += int64(len(keys))
	o.largest = max(o.largest, asked)
	if !lean && len(keys) > 0 {
		p := &posted{submission: *l, n: len(o.messages) + 1, at: now.UnixMilli(), settings: settings}
		p.sentAt = p.at + time.Duration(settings.LogDelay).Milliseconds()
		o.messages = append(o.messages, p)
		heap.Push(&o.pending, p)
	}
	return true
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
	heap.Init(&o.pending)
}

// appendDue appends to the log what the outbound server has sent by now. The caller holds the lock.
func (o *outbox) appendDue(now time.Time) {
	until := now.UnixMilli()
	for len(o.pending) > 0 {
		p := o.pending[0]
		if p.nextEvent() > until {
			return
		}
		o.log = append(o.log, row{message: uint32(p.n - 1), recipient: uint32(p.logged)})
		if p.logged++; p.logged == p.to.len() {
			heap.Pop(&o.pending)
		} else {
			heap.Fix(&o.pending, 0)
		}
	}
}

// nextEvent is when the message's next recipient enters the log.
func (p *posted) nextEvent() int64 { return p.eventAt(p.logged) }

// eventAt is when the outbound server sends to the i-th recipient.
func (p *posted) eventAt(i int) int64 {
	return p.sentAt + time.Duration(p.settings.LogSpread).Milliseconds()*int64(i)/int64(p.to.len())
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

// pairs seeds the hashes that count subjects and recipients. They never leave the process.
var pairs = maphash.MakeSeed()

// pair is the key of a recipient under a subject. Two of a million collide with a chance of less than one in ten million.
func pair(subject uint64, address string) uint64 {
	return mix(subject) ^ bits.RotateLeft64(maphash.String(pairs, sameDomain(address)), 17)
}

// queue is a heap of messages, the one with the earliest next event first.
type queue []*posted

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, j int) bool {
	if a, b := q[i].nextEvent(), q[j].nextEvent(); a != b {
		return a < b
	}
	return q[i].n < q[j].n
}
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(x any)   { *q = append(*q, x.(*posted)) }
func (q *queue) Pop() any {
	old := *q
	last := old[len(old)-1]
	*q = old[:len(old)-1]
	return last
}
