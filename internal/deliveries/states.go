package deliveries

import (
	"hash/maphash"
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

// group is the rows of one person that can be of the same several calls.
type group struct {
	places []place
	spans  int // calls; a batch may have several
	rows   []twin
}

// twin is one row of a group.
type twin struct {
	id     uint64
	status status
}

var groupSeed = maphash.MakeSeed()

// addTwin records the state of an ambiguous row.
func (x *calls) addTwin(r row, id uint64, s status) {
	c := x.candidates(r)
	if len(c.likely) < 2 {
		return
	}
	made := group{}
	var hash maphash.Hash
	hash.SetSeed(groupSeed)
	maphash.WriteComparable(&hash, r.to)
	for _, l := range c.likely {
		p := place{l.request.id, int(l.number), l.recipient}
		maphash.WriteComparable(&hash, p)
		made.places, made.spans = append(made.places, p), made.spans+l.spans
	}
	home, _ := x.find(made.places[0].request)
	g := home.groups[hash.Sum64()]
	if g == nil {
		g = &made
		home.groups[hash.Sum64()] = g
		x.grow(home, groupCost)
	}
	if i := slices.IndexFunc(g.rows, func(t twin) bool { return t.id == id }); i >= 0 {
		g.rows[i].status = g.rows[i].status.then(s)
	} else {
		g.rows = append(g.rows, twin{id, s})
		x.grow(home, 1)
	}
}

// settle counts the rows of a group if each call that they can be of was accepted, there are
// as many rows as calls, and all are in one state: then it does not matter whose is which.
// It returns the requests whose counts changed.
func (x *calls) settle(g *group) (changed []string) {
	if len(g.rows) != g.spans || slices.ContainsFunc(g.rows, func(t twin) bool { return t.status != g.rows[0].status }) {
		return nil
	}
	for _, p := range g.places {
		if b, e := x.entry(p); b == nil || !b.accepted || e.proven {
			return nil
		}
	}
	for _, p := range g.places {
		if _, e := x.entry(p); e.status != e.status.then(g.rows[0].status) {
			x.observe(p, g.rows[0].status, false)
			changed = append(changed, p.request)
		}
	}
	return changed
}

// settleAll counts the rows of all groups, and returns the requests whose counts changed.
func (x *calls) settleAll() (changed []string) {
	for _, g := range x.generations {
		for _, group := range g.groups {
			changed = append(changed, x.settle(group)...)
		}
	}
	return changed
}
