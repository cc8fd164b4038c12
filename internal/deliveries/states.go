package deliveries

import (
	"iter"
	"maps"
	"slices"
	"time"

	"errand/pkg/messages"
)

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

// statusIn is the status in a delivery event.
func statusIn(s messages.State) status {
	switch s {
	case messages.Delivered:
		return delivered
	case messages.Deferred:
		return deferred
	case messages.Bounced:
		return bounced
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

// entry returns the recipient at a place, or nil if it is unknown.
func (x *calls) entry(p place) (*batch, *entry) {
	g, b := x.findBatch(p.request, p.batch)
	if b == nil || p.recipient < int(b.first) || p.recipient >= int(b.first)+int(b.count) {
		return nil, nil
	}
	return b, &g.entries[int(b.start)+p.recipient-int(b.first)]
}

// observe records a state of a recipient; exact: the row is certainly of that batch, else
// it raises a doubt about it. It returns false if the recipient is unknown.
func (x *calls) observe(p place, s status, exact bool) bool {
	b, e := x.entry(p)
	if e == nil {
		return false
	}
	e.status = e.status.then(s)
	e.proven, b.doubted = e.proven || exact, b.doubted || !exact
	return true
}

// markOverdue records that a recipient was reported as overdue.
func (x *calls) markOverdue(p place) {
	if _, e := x.entry(p); e != nil {
		e.overdue = true
	}
}

// counts is the number of recipients of a request in each status.
func (g *generation) counts(r *request) (n [statuses]int) {
	for _, number := range slices.AppendSeq([]int{1}, maps.Keys(r.others)) {
		if b := g.batch(r, number); b != nil {
			for _, e := range g.of(b) {
				n[e.status]++
			}
		}
	}
	return n
}

// of are the recipients of a batch.
func (g *generation) of(b *batch) []entry { return g.entries[b.start : b.start+b.count] }

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
	for _, e := range g.of(b) {
		if e.proven {
			v.proven++
		}
	}
	return v, true
}

// acceptedBefore yields the batches that were accepted before a time, and when.
func (x *calls) acceptedBefore(before time.Time) iter.Seq2[*generation, *batch] {
	return func(yield func(*generation, *batch) bool) {
		for _, g := range x.generations {
			for i := range g.batches {
				if b := &g.batches[i]; b.accepted && len(b.spans) > 0 && b.ended().Before(before) && !yield(g, b) {
					return
				}
			}
		}
	}
}

// ended is when the last call that may have been accepted ended at the latest.
func (b *batch) ended() time.Time { return time.UnixMilli(b.spans[len(b.spans)-1].end) }

// silent yields the recipients that were accepted before a time, have no row and were
// not reported as overdue, and when they were accepted at the latest.
func (x *calls) silent(before time.Time) iter.Seq2[place, time.Time] {
	return func(yield func(place, time.Time) bool) {
		for g, b := range x.acceptedBefore(before) {
			for n, e := range g.of(b) {
				if e.status == unseen && !e.overdue && !yield(place{b.request.id, int(b.number), int(b.first) + n}, b.ended()) {
					return
				}
			}
		}
	}
}
