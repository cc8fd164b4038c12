package deliveries

import (
	"hash/maphash"
	"iter"
	"math"
	"slices"
	"time"

	"errand/internal/wire/mailkey"
)

// call is one submission of a batch, under way or finished.
type call struct {
	request    string
	batch      int         // from 1
	first      int         // index of its first recipient in the request, from 0
	from       mailkey.Key // 0: the request names no sender
	secret     uint32      // hash of the id of what the keys are made with; 0 if there are none
	begin, end time.Time   // end is the call's deadline until its real end is known
}

// calls holds recent calls with their recipients, their last states and their requests. The zero value is ready.
type calls struct {
	// max is how many recipients are kept; 0 means no limit. Beyond it the oldest requests are forgotten, and dropped, if set, is
	// called with the number of their recipients and the time of the oldest request that is left.
	max     int
	dropped func(recipients int, since time.Time)

	generations []*generation // oldest first
	size        int           // recipients
	steps       int           // recipients that were looked at for rows
}

// generation is a part of the requests that is forgotten at once. A request's batches are all in one. There are millions:
// they are kept in slices without pointers, which take less memory and are not scanned by the collector.
type generation struct {
	requests   []request
	ids        []byte // of requests
	batches    []batch
	recipients []recipient

	byID      index // requests
	byAddress index // recipients
	busy      map[mailkey.Key][]begun
	others    map[[2]uint32]uint32 // batches but the first, plus one, by the id and the number
	rows      map[uint64]held      // that may change, by their ids
	changed   []uint32             // requests whose counts may have to be published
	more      map[uint32][]uint32  // rows of a recipient but the first

	first   time.Time // of its first request
	last    int64     // the latest end of its calls, milliseconds since 1970
	longest int64     // the longest call, milliseconds
}

const (
	maxGeneration  = 1 << 18 // maximum number of recipients
	generationSpan = 24 * time.Hour
)

// request is a mail.send request and what is known about it. Times are milliseconds since 1970.
type request struct {
	at         int64  // of its last event
	opened     int64  // when it was started or reopened last
	reported   int64  // when the last summary was stored
	summary    uint64 // hash of that one's id; 0 if there is none
	id         uint32 // where it begins in ids
	next       uint32 // see index
	first      uint32 // its first batch in the generation, plus one; 0 if unknown
	last       uint32 // the highest number of its batches
	recipients int32  // as it was started with; 0 if unknown
	accepted   int32  // recipients accepted according to the events so far
	length     uint8  // of its id
	ended      ending
	single     bool // it was started with one batch
	final      bool // the last summary was final
	erased     bool
	changed    bool // it is among the changed
}

// summedUp reports whether the request has its final summary: one from before it was opened again is not.
func (r *request) summedUp() bool { return r.final && r.reported >= r.opened }

// change notes that a request's counts may have to be published.
func (g *generation) change(request uint32) {
	if r := &g.requests[request]; !r.changed {
		r.changed, g.changed = true, append(g.changed, request)
	}
}

type ending uint8

const (
	running ending = iota
	uncertain
	ended
)

// batch is a call of a batch. What is of the batch is in its first call alone.
type batch struct {
	span
	next uint32 // another call of the batch, plus one; 0 if there is none

	request  uint32
	number   int32
	first    int32  // index of its first recipient in the request
	start    uint32 // its first recipient
	count    uint32
	from     mailkey.Key
	secret   uint32
	accepted bool // certainly, with all its recipients
	replaced bool // by a batch of the same number: it was corrected, or its keys are of another secret
}

// span is in milliseconds since 1970. A call of unknown fate is open: the upstream may accept it long after the caller left.
type span struct {
	begin   int64
	long    uint32
	open    bool
	refused bool // it has no rows
}

func (s *span) end() int64 { return s.begin + int64(s.long) }

func (s *span) endBy(end int64) { s.long = uint32(max(0, min(int64(s.long), end-s.begin))) }

// spans yields the calls of a batch that may have been accepted.
func (g *generation) spans(b uint32) iter.Seq[*span] {
	return func(yield func(*span) bool) {
		for n := b + 1; n > 0; n = g.batches[n-1].next {
			if s := &g.batches[n-1].span; !s.refused && !yield(s) {
				return
			}
		}
	}
}

// add adds a call and its recipients, in order. When a batch is called again, the recipients may be left out. The calls
// of a batch must be added in the order in which they were made: one begins after the previous one has ended.
func (x *calls) add(c call, recipients []mailkey.Key) {
	g, n := x.request(c.request, c.begin)
	r, begin := &g.requests[n], c.begin.UnixMilli()
	r.at = max(r.at, begin)
	s := span{begin: begin, long: uint32(min(max(0, c.end.UnixMilli()-begin), math.MaxUint32)), open: true}
	g.last, g.longest = max(g.last, s.end()), max(g.longest, int64(s.long))
	b := batch{span: s, request: n, number: int32(c.batch), first: int32(c.first), start: uint32(len(g.recipients)),
		count: uint32(len(recipients)), from: c.from, secret: c.secret}
	i := uint32(len(g.batches))
	if old, known := g.batch(r, c.batch); known {
		for s := range g.spans(old) {
			s.endBy(begin)
		}
		was := &g.batches[old]
		same := func(r recipient, key mailkey.Key) bool { return r.address == key }
		if len(recipients) == 0 || was.secret == c.secret && was.from == c.from && slices.EqualFunc(g.of(old), recipients, same) {
			g.batches = append(g.batches, batch{span: s, next: was.next})
			g.batches[old].next = i + 1
			for n := range was.count {
				g.insert(was.start+n, s)
			}
			return
		}
		was.replaced = true
	}
	g.batches = append(g.batches, b)
	r.last = max(r.last, uint32(c.batch))
	if c.batch == 1 {
		r.first = i + 1
	} else {
		g.others[[2]uint32{r.id, uint32(c.batch)}] = i + 1
	}
	for _, key := range recipients {
		g.addRecipient(key, i)
	}
	x.size += len(recipients)
	for x.max > 0 && x.size > x.max && len(x.generations) > 1 {
		n := len(x.generations[0].recipients)
		if x.drop(); x.dropped != nil {
			x.dropped(n, x.generations[0].first)
		}
	}
}

// request returns the index of a request in its generation. It is added if it is unknown.
func (x *calls) request(id string, at time.Time) (*generation, uint32) {
	if g, n, ok := x.find(id); ok {
		return g, n
	}
	g := x.current(at)
	n := uint32(len(g.requests))
	g.requests = append(g.requests, request{id: uint32(len(g.ids)), length: uint8(len(id))})
	g.ids = append(g.ids, id...)
	g.byID.add(n)
	return g, n
}

func (g *generation) id(n uint32) []byte {
	r := &g.requests[n]
	return g.ids[r.id : r.id+uint32(r.length)]
}

// current is the generation that new requests are added to.
func (x *calls) current(at time.Time) *generation {
	if n := len(x.generations); n > 0 {
		g := x.generations[n-1]
		if len(g.recipients) < maxGeneration && at.Sub(g.first) < generationSpan {
			return g
		}
		g.requests, g.ids, g.batches = slices.Clone(g.requests), slices.Clone(g.ids), slices.Clone(g.batches) // no room for more
		g.recipients = slices.Clone(g.recipients)
	}
	g := &generation{first: at, last: at.UnixMilli(), busy: map[mailkey.Key][]begun{}, others: map[[2]uint32]uint32{},
		rows: map[uint64]held{}, more: map[uint32][]uint32{}}
	g.byID.hash = func(n uint32) uint64 { return maphash.Bytes(seed, g.id(n)) }
	g.byID.next = func(n uint32) *uint32 { return &g.requests[n].next }
	g.byAddress.hash = func(n uint32) uint64 { return uint64(g.recipients[n].address) }
	g.byAddress.next = func(n uint32) *uint32 { return &g.recipients[n].next }
	x.generations = append(x.generations, g)
	return g
}

func (x *calls) drop() {
	x.size -= len(x.generations[0].recipients)
	x.generations = slices.Delete(x.generations, 0, 1)
}

// forget drops generations whose calls all ended before a time.
func (x *calls) forget(before time.Time) {
	for len(x.generations) > 0 && x.generations[0].last < before.UnixMilli() {
		x.drop()
	}
}

// find returns the index of a request in its generation.
func (x *calls) find(id string) (*generation, uint32, bool) {
	hash := maphash.String(seed, id)
	for _, g := range slices.Backward(x.generations) {
		for n := range g.byID.chain(hash) {
			if string(g.id(n)) == id {
				return g, n, true
			}
		}
	}
	return nil, 0, false
}

// known returns a request, valid until the next is added, or nil.
func (x *calls) known(id string) *request {
	if g, n, ok := x.find(id); ok {
		return &g.requests[n]
	}
	return nil
}

func (g *generation) batch(r *request, number int) (b uint32, ok bool) {
	at := r.first
	if number != 1 {
		at = g.others[[2]uint32{r.id, uint32(number)}]
	}
	return at - 1, at > 0
}

func (x *calls) findBatch(id string, number int) (g *generation, b uint32, ok bool) {
	g, n, ok := x.find(id)
	if ok {
		b, ok = g.batch(&g.requests[n], number)
	}
	return g, b, ok
}

// fate is what is known of a call. Zero: it may have been accepted, or may still be accepted.
type fate struct {
	whole   bool // it or an earlier one was accepted with all its recipients
	over    bool // nothing is accepted after it, and nothing was in those before it that are open
	refused bool // it has no rows, nor have those
}

// close records that the call of a batch that was under way at a time ended then, and how.
func (x *calls) close(request string, number int, at time.Time, f fate) {
	g, b, ok := x.findBatch(request, number)
	if !ok {
		return
	}
	g.batches[b].accepted = g.batches[b].accepted || f.whole
	var last *span
	for s := range g.spans(b) {
		if s.begin <= at.UnixMilli() && (last == nil || s.begin > last.begin) {
			last = s
		}
	}
	if last == nil {
		return
	}
	last.endBy(at.UnixMilli())
	last.open, last.refused = last.open && !f.over, f.refused
	for s := range g.spans(b) {
		s.refused = s.refused || s.open && s.begin < last.begin && (f.over || f.refused) // it found the service busy
	}
}
