package deliveries

import (
	"iter"
	"maps"
	"slices"
	"time"

	"errand/pkg/messages"
)

// recipient is one address of one batch, and what became of it.
type recipient struct {
	batch    uint32
	previous uint32 // the one before with the same address, plus one; 0 if there is none
	status   status
	proven   bool // there is a row that is certainly of this batch
	overdue  bool // that was reported; it matters only while there is no row
}

type status uint8

const (
	unseen status = iota // it has no row
	delivered
	deferred
	bounced
	unknown
	statuses
)

// states are the statuses as events have them.
var states = [statuses]messages.State{delivered: messages.Delivered, deferred: messages.Deferred, bounced: messages.Bounced,
	unknown: messages.Unknown}

// statusIn is the status in a delivery event.
func statusIn(s messages.State) status {
	if i := slices.Index(states[:], s); i > 0 {
		return status(i)
	}
	return unknown
}

// then is the status after another one is seen or learned. Delivered stays, and bounced
// stays unless delivered follows: any other that is learned later is an older one.
func (s status) then(next status) status {
	if s == delivered || s == bounced && next != delivered {
		return s
	}
	return next
}

type place struct {
	request          string
	batch, recipient int
}

// recipient returns the recipient at a place, or nil if it is unknown.
func (x *calls) recipient(p place) (*batch, *recipient) {
	g, b := x.findBatch(p.request, p.batch)
	if b == nil || p.recipient < int(b.first) || p.recipient >= int(b.first)+int(b.count) {
		return nil, nil
	}
	return b, &g.recipients[int(b.start)+p.recipient-int(b.first)]
}

// observe records a state of a recipient; exact: the row is certainly of that batch. false: the recipient is unknown.
func (x *calls) observe(p place, s status, exact bool) bool {
	_, r := x.recipient(p)
	if r == nil {
		return false
	}
	r.status, r.proven = r.status.then(s), r.proven || exact
	return true
}

func (x *calls) markOverdue(p place) {
	if _, r := x.recipient(p); r != nil {
		r.overdue = true
	}
}

// counts is the number of recipients of a request in each status.
func (g *generation) counts(r *request) (n [statuses]int) {
	for _, number := range slices.AppendSeq([]int{1}, maps.Keys(r.others)) {
		if b := g.batch(r, number); b != nil {
			for _, to := range g.of(b) {
				n[to.status]++
			}
		}
	}
	return n
}

func (g *generation) of(b *batch) []recipient { return g.recipients[b.start : b.start+b.count] }

// proven is how many recipients of a batch of this size have a row that is certainly of it; 0 if the batch is unknown.
func (x *calls) proven(request string, number, count int) (n int) {
	g, b := x.findBatch(request, number)
	if b == nil || int(b.count) != count {
		return 0
	}
	for _, r := range g.of(b) {
		if r.proven {
			n++
		}
	}
	return n
}

// lastEnd is when the last call that may have been accepted ended at the latest.
func (b *batch) lastEnd() time.Time { return time.UnixMilli(b.spans[len(b.spans)-1].end) }

// silent yields the recipients accepted before a time, without a row and not yet overdue, and their latest acceptance.
func (x *calls) silent(before time.Time) iter.Seq2[place, time.Time] {
	return func(yield func(place, time.Time) bool) {
		for _, g := range x.generations {
			for i := range g.batches {
				b := &g.batches[i]
				if !b.accepted || len(b.spans) == 0 || !b.lastEnd().Before(before) {
					continue
				}
				for n, r := range g.of(b) {
					if r.status == unseen && !r.overdue && !yield(place{b.request.id, int(b.number), int(b.first) + n}, b.lastEnd()) {
						return
					}
				}
			}
		}
	}
}
