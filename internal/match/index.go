// Package match finds the request that a row of the sending log belongs to. The
// upstream gives a submission no id, so a row is matched to a call by what both have:
// the recipient, the sender and the time of acceptance.
//
//	mail.log.sent.<id>.<n> ─► Add ─┐
//	the batch's outcome ────► Close ┤ calls by recipient
//	row ────────────────────► Find ─┴─► exact, unique, ambiguous or none
package match

import (
	"slices"
	"time"

	"errand/pkg/messages"
)

// Call is one submission of a batch, under way or finished.
type Call struct {
	Request    string
	Batch      int          // from 1
	First      int          // index of its first recipient in the request, from 0
	From       messages.Key // 0: the request names no sender
	Begin, End time.Time    // End is the call's deadline until its real end is known
}

// Index holds recent calls with their recipients, and the last state of each recipient.
// The zero value is ready; it is not safe for concurrent use. A recipient takes about
// 48 bytes.
type Index struct {
	// MaxRecipients is the maximum number of recipients, 0: unlimited; a batch counts as
	// batchCost more. Beyond it the oldest calls are forgotten, about a million
	// recipients at once, and their later rows have no match.
	MaxRecipients int

	generations []*generation // oldest first
	recipients  int
	size        int // as MaxRecipients counts
}

// batchCost is the number of recipients that take as much memory as an empty batch.
const batchCost = 12

// generation is a part of the calls that is forgotten as a whole.
type generation struct {
	heads   map[messages.Key]uint32 // the last entry of a recipient, plus one
	entries []entry
	batches []batch
	numbers map[name]uint32 // index into batches
	last    int64           // the latest end of its calls, milliseconds since 1970
	size    int
}

type name struct {
	request string
	number  int32
}

// entry is one recipient of one batch.
type entry struct {
	batch    uint32
	previous uint32 // the previous entry of the same recipient, plus one; 0: none
	at       uint16 // position in the batch
	state    uint8  // its State, and reportedOverdue
}

type batch struct {
	name
	first    int32
	start    uint32 // its first entry
	count    uint32
	seen     uint32 // recipients with a row
	doubted  bool   // there is a row that may or may not belong to this batch
	accepted bool   // certainly, with all its recipients
	from     messages.Key
	until    int64  // announced end of its last call
	spans    []span // the calls that may have been accepted
}

// span is in milliseconds since 1970. A call whose end is unknown may be accepted until
// late: an upstream may finish its work although the caller is gone.
type span struct{ begin, end, late int64 }

// maxLateness is how long after its end a call may still be accepted.
const maxLateness = 15 * time.Minute

// maxPerGeneration is the number of recipients that are forgotten at once.
const maxPerGeneration = 1 << 20

// Add adds a call and its recipients, in order. When a batch is called again, the
// recipients may be left out. The calls of a batch must be added in the order in which
// they were made: one begins after the previous one has ended.
func (x *Index) Add(c Call, recipients []messages.Key) {
	s := span{begin: c.Begin.UnixMilli(), end: max(c.Begin.UnixMilli(), c.End.UnixMilli())}
	s.late = s.end + maxLateness.Milliseconds()
	if g, b := x.find(c.Request, c.Batch); b != nil {
		if n := len(b.spans); n > 0 {
			last := &b.spans[n-1]
			last.end = max(last.begin, min(last.end, s.begin))
		}
		b.spans, b.until = append(b.spans, s), s.end
		g.last = max(g.last, s.end)
		return
	}
	g := x.current()
	number := uint32(len(g.batches))
	g.batches = append(g.batches, batch{name: name{c.Request, int32(c.Batch)}, first: int32(c.First), start: uint32(len(g.entries)),
		count: uint32(len(recipients)), from: c.From, until: s.end, spans: []span{s}})
	g.numbers[name{c.Request, int32(c.Batch)}] = number
	g.last = max(g.last, s.end)
	for i, key := range recipients {
		g.entries = append(g.entries, entry{batch: number, previous: g.heads[key], at: uint16(i)})
		g.heads[key] = uint32(len(g.entries))
	}
	x.recipients += len(recipients)
	x.size += len(recipients) + batchCost
	g.size += len(recipients) + batchCost
	for x.MaxRecipients > 0 && x.size > x.MaxRecipients && len(x.generations) > 1 {
		x.drop()
	}
}

// current is the generation that new calls are added to.
func (x *Index) current() *generation {
	if n := len(x.generations); n > 0 && x.generations[n-1].size < maxPerGeneration {
		return x.generations[n-1]
	}
	g := &generation{heads: map[messages.Key]uint32{}, numbers: map[name]uint32{}}
	x.generations = append(x.generations, g)
	return g
}

func (x *Index) drop() {
	x.recipients -= len(x.generations[0].entries)
	x.size -= x.generations[0].size
	x.generations = slices.Delete(x.generations, 0, 1)
}

// Fate is what is known of a call.
type Fate int

// The fates.
const (
	Open     Fate = iota // it may have been accepted, or may still be accepted
	Accepted             // accepted with all its recipients
	Repeated             // accepted with all its recipients, and an earlier call perhaps too
	Partly               // accepted with some of its recipients
	Refused              // not accepted; it has no rows
)

// Close records that the call of a batch that was under way at a time ended then, and
// how.
func (x *Index) Close(request string, number int, at time.Time, f Fate) {
	_, b := x.find(request, number)
	if b == nil {
		return
	}
	b.accepted = b.accepted || f == Accepted || f == Repeated
	end := at.UnixMilli()
	for i := len(b.spans) - 1; i >= 0; i-- {
		switch s := &b.spans[i]; {
		case s.begin > end: // a later call
		case f == Refused:
			b.spans = slices.Delete(b.spans, i, i+1)
			return
		default:
			s.end = min(s.end, end)
			if f == Accepted || f == Partly {
				s.late = s.end
			}
			return
		}
	}
}

// find returns a batch, or nil if it is unknown.
func (x *Index) find(request string, number int) (*generation, *batch) {
	for _, g := range slices.Backward(x.generations) {
		if i, ok := g.numbers[name{request, int32(number)}]; ok {
			return g, &g.batches[i]
		}
	}
	return nil, nil
}

// Forget drops generations whose calls all ended before a time.
func (x *Index) Forget(before time.Time) {
	for len(x.generations) > 0 && x.generations[0].last < before.UnixMilli() {
		x.drop()
	}
}

// Recipients is the number of recipients in the index.
func (x *Index) Recipients() int { return x.recipients }
