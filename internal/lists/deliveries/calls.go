package deliveries

import (
	"hash/maphash"
	"math"
	"slices"
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
	// max is the maximum size; 0 means no limit. Beyond it the oldest requests are forgotten.
	max int

	generations []*generation // oldest first
	size        int           // recipients; a request without any counts as one
	dropped     int           // of them, because there were too many
	steps       int           // recipients that were looked at for rows
}

var seed = maphash.MakeSeed()

// generation is a part of the requests that is forgotten at once. A request's batches are all in one. There are millions:
// they are kept in slices without pointers, which take less memory and are not scanned by the collector.
type generation struct {
	requests   []request
	changed    []uint32 // of them
	ids        []byte   // of requests
	batches    []batch
	recipients []recipient

	byID      table // requests
	byAddress table // the last recipient with an address
	busy      map[messages.Key]*busy
	others    map[[2]uint32]uint32 // batches but the first, plus one, by the id and the number
	several   map[uint32][]span    // the calls of a batch that has several
	rows      map[uint64]held      // that may change, by their ids
	more      map[uint32][]uint32  // rows of a recipient but the first

	size    int
	first   time.Time // of its first request
	last    int64     // the latest end of its calls, milliseconds since 1970
	longest int64     // the longest call, milliseconds
}

const (
	maxGeneration  = 1 << 18 // maximum size
	generationSpan = 24 * time.Hour
)

// request is a mail.send request and what is known about it. Times are milliseconds since 1970.
type request struct {
	at         int64  // of its last event
	opened     int64  // when it was started or reopened last
	reported   int64  // when the last summary was stored
	note       uint64 // hash of that one's NoteOf; 0 if there is none
	id         uint32 // where it begins in ids
	first      uint32 // its first batch in the generation, plus one; 0 if unknown
	last       uint32 // the highest number of its batches
	batches    int32  // as it was started with; 0 if unknown
	recipients int32  // likewise
	accepted   int32  // recipients accepted according to the events so far
	length     uint8  // of its id
	ended      ending
	final      bool // the last summary was final
	erased     bool
	counted    bool // by its recipients
	changed    bool // its counts may have to be published
}

// summedUp reports whether the request has its final summary: one from before it was opened again is not.
func (r *request) summedUp() bool { return r.final && r.reported >= r.opened }

type ending uint8

const (
	running ending = iota
	uncertain
	ended
)

type batch struct {
	from     messages.Key
	only     [1]span // if it has one call
	request  uint32
	number   int32
	first    int32  // index of its first recipient in the request
	start    uint32 // its first recipient
	count    uint32
	secret   uint32
	calls    uint8 // 0 or 1; otherwise they are in several
	accepted bool  // certainly, with all its recipients
}

// span is in milliseconds since 1970. A call of unknown fate is open: the upstream may accept it long after the caller left.
type span struct {
	begin int64
	long  uint32
	open  bool
}

func (s *span) end() int64 { return s.begin + int64(s.long) }

func (s *span) endBy(end int64) { s.long = uint32(max(0, min(int64(s.long), end-s.begin))) }

// spans are the calls of a batch that may have been accepted.
func (g *generation) spans(b uint32) []span {
	if all, ok := g.several[b]; ok {
		return all
	}
	return g.batches[b].only[:g.batches[b].calls]
}

func (g *generation) setSpans(b uint32, all []span) {
	if len(all) > 1 {
		g.several[b] = all
		return
	}
	to := &g.batches[b]
	to.calls = uint8(copy(to.only[:], all))
	delete(g.several, b)
}

// add adds a call and its recipients, in order. When a batch is called again, the recipients may be left out. The calls
// of a batch must be added in the order in which they were made: one begins after the previous one has ended.
func (x *calls) add(c call, recipients []messages.Key) {
	g, n := x.request(c.request, c.begin)
	r, begin := &g.requests[n], c.begin.UnixMilli()
	r.at = max(r.at, begin)
	s := span{begin: begin, long: uint32(min(max(0, c.end.UnixMilli()-begin), math.MaxUint32)), open: true}
	g.last, g.longest = max(g.last, s.end()), max(g.longest, int64(s.long))
	old, known := g.batch(r, c.batch)
	var spans []span
	if known {
		if spans = slices.Clone(g.spans(old)); len(spans) > 0 {
			spans[len(spans)-1].endBy(begin)
		}
		if len(recipients) == 0 || g.isOf(old, c, recipients) {
			g.setSpans(old, append(spans, s))
			for i := range g.batches[old].count {
				g.insert(g.batches[old].start+i, s)
			}
			return
		}
		g.setSpans(old, nil)
		if g.batches[old].secret == c.secret { // a correction: what it corrects had no effect
			spans = nil
		}
	}
	r.last = max(r.last, uint32(c.batch))
	b := uint32(len(g.batches))
	g.batches = append(g.batches, batch{request: n, number: int32(c.batch), first: int32(c.first), start: uint32(len(g.recipients)),
		count: uint32(len(recipients)), from: c.from, secret: c.secret})
	g.setSpans(b, append(spans, s))
	if c.batch == 1 {
		r.first = b + 1
	} else {
		g.others[[2]uint32{r.id, uint32(c.batch)}] = b + 1
	}
	for _, key := range recipients {
		g.addRecipient(key, b)
	}
	size := len(recipients)
	if !r.counted { // it was one
		r.counted = true
		size--
	}
	x.grow(g, size)
}

// isOf reports whether a batch has this sender and these recipients.
func (g *generation) isOf(b uint32, c call, recipients []messages.Key) bool {
	of := &g.batches[b]
	return of.secret == c.secret && of.from == c.from &&
		slices.EqualFunc(g.of(b), recipients, func(r recipient, key messages.Key) bool { return r.address == key })
}

// request returns the index of a request in its generation. It is added if it is unknown.
func (x *calls) request(id string, at time.Time) (*generation, uint32) {
	if g, n, ok := x.index(id); ok {
		return g, n
	}
	g := x.current(at)
	n := uint32(len(g.requests))
	g.requests = append(g.requests, request{id: uint32(len(g.ids)), length: uint8(len(id))})
	g.ids = append(g.ids, id...)
	g.byID.put(maphash.String(seed, id), n, func(n uint32) uint64 { return maphash.Bytes(seed, g.id(n)) })
	x.grow(g, 1)
	return g, n
}

func (g *generation) id(n uint32) []byte {
	r := &g.requests[n]
	return g.ids[r.id : r.id+uint32(r.length)]
}

// grow counts what was added, and forgets the oldest requests if it is too much.
func (x *calls) grow(g *generation, size int) {
	g.size += size
	x.size += size
	for x.max > 0 && x.size > x.max && len(x.generations) > 1 {
		x.dropped += x.generations[0].size
		x.drop()
	}
}

// current is the generation that new requests are added to.
func (x *calls) current(at time.Time) *generation {
	if n := len(x.generations); n > 0 {
		g := x.generations[n-1]
		if g.size < maxGeneration && at.Sub(g.first) < generationSpan {
			return g
		}
		g.clip()
	}
	g := &generation{first: at, last: at.UnixMilli(), busy: map[messages.Key]*busy{}, others: map[[2]uint32]uint32{},
		several: map[uint32][]span{}, rows: map[uint64]held{}, more: map[uint32][]uint32{}}
	x.generations = append(x.generations, g)
	return g
}

// clip frees the room for more.
func (g *generation) clip() {
	g.requests, g.ids, g.batches = slices.Clone(g.requests), slices.Clone(g.ids), slices.Clone(g.batches)
	g.recipients = slices.Clone(g.recipients)
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

func (x *calls) index(id string) (*generation, uint32, bool) {
	hash := maphash.String(seed, id)
	for _, g := range slices.Backward(x.generations) {
		if n, ok := g.byID.find(hash, func(n uint32) bool { return string(g.id(n)) == id }); ok {
			return g, n, true
		}
	}
	return nil, 0, false
}

// find returns a request, valid until the next is added, or nil if it is unknown.
func (x *calls) find(id string) (*generation, *request) {
	if g, n, ok := x.index(id); ok {
		return g, &g.requests[n]
	}
	return nil, nil
}

// change notes that the counts of a request may have to be published.
func (x *calls) change(id string) {
	if g, n, ok := x.index(id); ok {
		g.change(n)
	}
}

func (g *generation) change(n uint32) {
	if r := &g.requests[n]; !r.changed {
		r.changed = true
		g.changed = append(g.changed, n)
	}
}

func (g *generation) batch(r *request, number int) (b uint32, ok bool) {
	at := r.first
	if number != 1 {
		at = g.others[[2]uint32{r.id, uint32(number)}]
	}
	return at - 1, at > 0
}

func (x *calls) findBatch(id string, number int) (g *generation, b uint32, ok bool) {
	g, r := x.find(id)
	if r != nil {
		b, ok = g.batch(r, number)
	}
	return g, b, ok
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
	g, b, ok := x.findBatch(request, number)
	if !ok {
		return
	}
	if f == accepted || f == repeated {
		g.batches[b].accepted = true
	}
	spans := slices.Clone(g.spans(b))
	end, i := at.UnixMilli(), len(spans)-1
	for i >= 0 && spans[i].begin > end { // a later call
		i--
	}
	switch {
	case i < 0:
		return
	case f == refused:
		spans = slices.Delete(spans, i, i+1)
	default:
		spans[i].endBy(end)
		spans[i].open = spans[i].open && f != accepted && f != partly
	}
	g.setSpans(b, spans)
}
