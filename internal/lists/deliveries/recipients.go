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
	previous uint32 // the one before with the same address, plus one; 0: none
	status   status
	proven   bool // there is a row that is certainly of this batch
	overdue  bool // that was reported; it matters only while there is no row
}

// status is the last state of a recipient.
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
var states = [statuses]messages.State{delivered: messages.Delivered, deferred: messages.Deferred, bounced: messages.Bounced, unknown: messages.Unknown}

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

// place is a recipient of a batch.
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

// observe records a state of a recipient; exact: the row is certainly of that batch, else
// it raises a doubt about it. It returns false if the recipient is unknown.
func (x *calls) observe(p place, s status, exact bool) bool {
	b, r := x.recipient(p)
	if r == nil {
		return false
	}
	r.status = r.status.then(s)
	r.proven, b.doubted = r.proven || exact, b.doubted || !exact
	return true
}

// markOverdue records that a recipient was reported as overdue.
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

// of are the recipients of a batch.
func (g *generation) of(b *batch) []recipient { return g.recipients[b.start : b.start+b.count] }

// evidence is what the rows show about a batch.
type evidence struct {
	count        int       // recipients
	proven       int       // recipients with a row that is certainly of this batch
	doubted      bool      // there is a row that may or may not belong to this batch
	begin, until time.Time // when its first call began, and its last one had ended
}

// evidence returns the evidence for a batch. ok is false if the batch is unknown.
func (x *calls) evidence(request string, number int) (v evidence, ok bool) {
	g, b := x.findBatch(request, number)
	if b == nil {
		return v, false
	}
	v = evidence{count: int(b.count), doubted: b.doubted, begin: time.UnixMilli(b.until), until: time.UnixMilli(b.until)}
	if len(b.spans) > 0 {
		v.begin = time.UnixMilli(b.spans[0].begin)
	}
	for _, r := range g.of(b) {
		if r.proven {
			v.proven++
		}
	}
	return v, true
}

// acceptedBefore yields the batches that were accepted before a time.
func (x *calls) acceptedBefore(before time.Time) iter.Seq2[*generation, *batch] {
	return func(yield func(*generation, *batch) bool) {
		for _, g := range x.generations {
			for i := range g.batches {
				if b := &g.batches[i]; b.accepted && len(b.spans) > 0 && b.lastEnd().Before(before) && !yield(g, b) {
					return
				}
			}
		}
	}
}

// lastEnd is when the last call that may have been accepted ended at the latest.
func (b *batch) lastEnd() time.Time { return time.UnixMilli(b.spans[len(b.spans)-1].end) }

// silent yields the recipients that were accepted before a time, have no row and were
// not reported as overdue, and when they were accepted at the latest.
func (x *calls) silent(before time.Time) iter.Seq2[place, time.Time] {
	return func(yield func(place, time.Time) bool) {
		for g, b := range x.acceptedBefore(before) {
			for n, r := range g.of(b) {
				if r.status == unseen && !r.overdue && !yield(place{b.request.id, int(b.number), int(b.first) + n}, b.lastEnd()) {
					return
				}
			}
		}
	}
}
