package deliveries

import (
	"slices"
	"strings"
	"time"

	"errand/pkg/messages"
)

// call is one submission of a batch, under way or finished.
type call struct {
	request    string
	batch      int          // from 1
	first      int          // index of its first recipient in the request, from 0
	from       messages.Key // 0: the request names no sender
	secret     uint32       // hash of the id of what the keys are made with; 0 if with none
	begin, end time.Time    // end is the call's deadline until its real end is known
}

// calls holds recent calls with their recipients, their last states and their requests. The zero value is ready.
type calls struct {
	// max is the maximum size; 0 means no limit. Beyond it the oldest requests, about a million recipients, are forgotten.
	max int

	generations []*generation // oldest first
	size        int           // recipients, and what takes as much memory
}

// What takes as much memory as this many recipients, each about 45 bytes.
const (
	requestCost = 4
	batchCost   = 2
)

// generation is a part of the requests that is forgotten at once. A request's batches are all in one.
type generation struct {
	requests   map[string]*request
	batches    []batch
	recipients []recipient
	heads      map[messages.Key]uint32 // the last recipient with an address, plus one
	groups     map[uint64]*group       // of ambiguous rows
	size       int
	first      time.Time // of its first request
	last       int64     // the latest end of its calls, milliseconds since 1970
}

const (
	maxGeneration  = 1 << 20 // maximum size
	generationSpan = 24 * time.Hour
)

// request is a mail.send request and what is known about it.
type request struct {
	id         string
	at         int64          // of its last event, milliseconds since 1970
	batches    int32          // as it was started with; 0 if unknown
	recipients int32          // likewise
	accepted   int32          // recipients accepted according to the events so far
	one        uint32         // its first batch in the generation, plus one; 0 if unknown
	others     map[int]uint32 // its other batches, by number
	ended      ending
	reported   reported
}

type ending uint8

const (
	running ending = iota
	uncertain
	ended
)

// reported is the last summary that was published.
type reported struct {
	note  uint64 // hash of its NoteOf; 0 if there is none
	at    int64  // milliseconds since 1970
	final bool
}

type batch struct {
	request  *request
	number   int32
	first    int32  // index of its first recipient in the request
	start    uint32 // its first recipient
	count    uint32
	secret   uint32
	accepted bool // certainly, with all its recipients
	from     messages.Key
	spans    []span // the calls that may have been accepted
}

// span is in milliseconds since 1970. A call of unknown fate is open: the upstream may accept it long after the caller left.
type span struct {
	begin, end int64
	open       bool
}

func (s *span) endBy(end int64) { s.end = max(s.begin, min(s.end, end)) }

// add adds a call and its recipients, in order. When a batch is called again, the recipients may be left out. The calls
// of a batch must be added in the order in which they were made: one begins after the previous one has ended.
func (x *calls) add(c call, recipients []messages.Key) {
	g, r := x.request(c.request, c.begin)
	begin := c.begin.UnixMilli()
	r.at = max(r.at, begin)
	s := span{begin: begin, end: max(begin, c.end.UnixMilli()), open: true}
	g.last = max(g.last, s.end)
	var spans []span
	if b := g.batch(r, c.batch); b != nil {
		if n := len(b.spans); n > 0 {
			b.spans[n-1].endBy(begin)
		}
		if len(recipients) == 0 || g.isOf(b, c, recipients) {
			b.spans = append(b.spans, s)
			return
		}
		spans, b.spans = b.spans, nil // a correction has others, or another sender
	}
	g.batches = append(g.batches, batch{request: r, number: int32(c.batch), first: int32(c.first), start: uint32(len(g.recipients)),
		count: uint32(len(recipients)), from: c.from, secret: c.secret, spans: append(spans, s)})
	number := uint32(len(g.batches))
	if c.batch == 1 {
		r.one = number
	} else {
		if r.others == nil {
			r.others = map[int]uint32{}
		}
		r.others[c.batch] = number
	}
	for _, key := range recipients {
		g.recipients = append(g.recipients, recipient{batch: number - 1, previous: g.heads[key]})
		g.heads[key] = uint32(len(g.recipients))
	}
	x.grow(g, len(recipients)+batchCost)
}

// isOf reports whether a batch has this sender and these recipients, as far as their keys can be compared.
func (g *generation) isOf(b *batch, c call, recipients []messages.Key) bool {
	if b.secret != c.secret {
		return int(b.count) == len(recipients)
	}
	if b.from != c.from || int(b.count) != len(recipients) {
		return false
	}
	for i, key := range recipients {
		n := g.heads[key]
		for n > 0 && n-1 != b.start+uint32(i) {
			n = g.recipients[n-1].previous
		}
		if n == 0 {
			return false
		}
	}
	return true
}

// request returns a request, which it adds if it is unknown.
func (x *calls) request(id string, at time.Time) (*generation, *request) {
	if g, r := x.find(id); r != nil {
		return g, r
	}
	g := x.current(at)
	r := &request{id: strings.Clone(id)} // not the whole subject that it is a part of
	g.requests[r.id] = r
	x.grow(g, requestCost)
	return g, r
}

// grow counts what was added, and forgets the oldest requests if it is too much.
func (x *calls) grow(g *generation, size int) {
	g.size += size
	x.size += size
	for x.max > 0 && x.size > x.max && len(x.generations) > 1 {
		x.drop()
	}
}

// current is the generation that new requests are added to.
func (x *calls) current(at time.Time) *generation {
	if n := len(x.generations); n > 0 {
		if g := x.generations[n-1]; g.size < maxGeneration && at.Sub(g.first) < generationSpan {
			return g
		}
	}
	g := &generation{first: at, last: at.UnixMilli(), requests: map[string]*request{}, heads: map[messages.Key]uint32{},
		groups: map[uint64]*group{}}
	x.generations = append(x.generations, g)
	return g
}

func (x *calls) drop() {
	x.size -= x.generations[0].size
	x.generations = slices.Delete(x.generations, 0, 1)
}

// forget drops generations whose calls all ended before a time.
func (x *calls) forget(before time.Time) {
	for len(x.generations) > 0 && x.generations[0].last < before.UnixMilli() {
		x.drop()
	}
}

// find returns a request, or nil if it is unknown.
func (x *calls) find(id string) (*generation, *request) {
	for _, g := range slices.Backward(x.generations) {
		if r := g.requests[id]; r != nil {
			return g, r
		}
	}
	return nil, nil
}

func (g *generation) batch(r *request, number int) *batch {
	at := r.others[number]
	if number == 1 {
		at = r.one
	}
	if at == 0 {
		return nil
	}
	return &g.batches[at-1]
}

func (x *calls) findBatch(id string, number int) (*generation, *batch) {
	if g, r := x.find(id); r != nil {
		return g, g.batch(r, number)
	}
	return nil, nil
}

// fate is what is known of a call.
type fate int

const (
	open     fate = iota // it may have been accepted, or may still be accepted
	accepted             // accepted with all its recipients
	repeated             // accepted with all its recipients, and an earlier call perhaps too
	partly               // accepted with some of its recipients
	refused              // not accepted; it has no rows
)

// close records that the call of a batch that was under way at a time ended then, and how.
func (x *calls) close(request string, number int, at time.Time, f fate) {
	_, b := x.findBatch(request, number)
	if b == nil {
		return
	}
	b.accepted = b.accepted || f == accepted || f == repeated
	end, i := at.UnixMilli(), len(b.spans)-1
	for i >= 0 && b.spans[i].begin > end { // a later call
		i--
	}
	switch {
	case i < 0:
	case f == refused:
		b.spans = slices.Delete(b.spans, i, i+1)
	default:
		b.spans[i].endBy(end)
		b.spans[i].open = b.spans[i].open && f != accepted && f != partly
	}
}
