// Package match finds the request that a row of the sending log belongs to. The
// upstream gives a submission no id, so a row is tied to a call by what both know:
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

// Call is one submission of a batch, on its way or made.
type Call struct {
	Request    string
	Batch      int          // from 1
	First      int          // index of its first recipient in the request, from 0
	From       messages.Key // 0: the request names no sender
	Begin, End time.Time    // from before the call to its end, or to its deadline while that is not known
}

// Index knows the calls of a while and their recipients, and what was seen of each.
// The zero value is ready; it is not safe for concurrent use. A recipient takes about
// 48 bytes.
type Index struct {
	// Most is how many recipients are known at most, 0: any number; a batch counts as
	// perBatch more. Beyond it the oldest calls are forgotten, about a million
	// recipients at once, and rows of theirs that come later match none.
	Most int

	generations []*generation // the oldest first
	recipients  int
	size        int // as Most counts
}

// perBatch is how many recipients take as much room as a batch without any.
const perBatch = 12

// generation is a share of the calls, forgotten as a whole.
type generation struct {
	heads   map[messages.Key]uint32 // the last entry of a recipient
	entries []entry
	batches []batch
	numbers map[name]uint32 // of the batches
	last    int64           // when the last of its calls was over at the latest, milliseconds since 1970
	size    int
}

type name struct {
	request string
	number  int32
}

// entry is one recipient of one batch.
type entry struct {
	batch uint32
	prior uint32 // entry of the same recipient, plus one; 0: there is none
	at    uint16 // position in the batch
	state uint8  // what was seen of it, and told
}

type batch struct {
	name
	first    int32
	start    uint32 // its first entry
	count    uint32
	seen     uint32 // recipients with a row
	doubted  bool   // there is a row that may be of this batch, or of another one or nobody's
	accepted bool   // whole, for certain
	from     messages.Key
	until    int64  // end of its last call, as it was announced
	spans    []span // of its calls that may have been accepted
}

// span is in milliseconds since 1970. What is not known to be over may still be
// accepted until late: an upstream goes on with the work of a caller that left.
type span struct{ begin, end, late int64 }

// lateness is how long after the end of a call it may be accepted.
const lateness = 15 * time.Minute

// perGeneration is how many recipients are forgotten at once.
const perGeneration = 1 << 20

// Add takes a call and its recipients, in order. For a batch that is called again
// the recipients may be left out. Calls of a batch come in the order in which they
// were made: one begins after the one before it is over.
func (x *Index) Add(c Call, recipients []messages.Key) {
	s := span{begin: c.Begin.UnixMilli(), end: max(c.Begin.UnixMilli(), c.End.UnixMilli())}
	s.late = s.end + lateness.Milliseconds()
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
		g.entries = append(g.entries, entry{batch: number, prior: g.heads[key], at: uint16(i)})
		g.heads[key] = uint32(len(g.entries))
	}
	x.recipients += len(recipients)
	x.size += len(recipients) + perBatch
	g.size += len(recipients) + perBatch
	for x.Most > 0 && x.size > x.Most && len(x.generations) > 1 {
		x.drop()
	}
}

// current is the generation that takes what is new.
func (x *Index) current() *generation {
	if n := len(x.generations); n > 0 && x.generations[n-1].size < perGeneration {
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
	Open     Fate = iota // it may have been accepted, or may still be
	Accepted             // it was, with all its recipients
	Repeated             // so it was, but an earlier one may have been too
	Partly               // it was, with some of them
	Refused              // it was not, and has no rows
)

// Close tells how a batch's call ended that was under way at a time, and that it was
// over then.
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

// find gives a batch; nil when it is not known.
func (x *Index) find(request string, number int) (*generation, *batch) {
	for _, g := range slices.Backward(x.generations) {
		if i, ok := g.numbers[name{request, int32(number)}]; ok {
			return g, &g.batches[i]
		}
	}
	return nil, nil
}

// Forget drops calls that were over before a time, as far as that frees memory.
func (x *Index) Forget(before time.Time) {
	for len(x.generations) > 0 && x.generations[0].last < before.UnixMilli() {
		x.drop()
	}
}

// Recipients is how many are known.
func (x *Index) Recipients() int { return x.recipients }
