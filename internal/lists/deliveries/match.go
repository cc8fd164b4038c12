package deliveries

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"errand/pkg/messages"
)

// found is the recipient that a row belongs to.
type found struct {
	messages.Match
	place // zero unless exact or unique

	in *generation // nil unless exact or unique
	at uint32      // the recipient in it
}

const (
	// maxSkew is how far the upstream's clock may be off when it was measured. Later it may be off by more: see row.skew.
	maxSkew = int64(2 * time.Second / time.Millisecond)
	// driftTime is the time in which an unset clock gains or loses one part of it at most: 100 ppm.
	driftTime = 10_000
	// maxLateness is how long after its end a call may still be accepted whose fate is unknown.
	maxLateness = int64(15 * time.Minute / time.Millisecond)
	// maxQueueTime is the maximum time from acceptance to a row: mail servers give up after five days (RFC 5321).
	maxQueueTime  = 5 * 24 * time.Hour
	maxCandidates = 20 // in an event
)

// match returns the call that a row belongs to. A row that was matched before stays where it is.
//
//   - exact: the message was accepted during one call, and during no other one even if the two clocks differ by the row's
//     skew: two seconds, and what they may have drifted apart since. Nothing else proves that a call was accepted.
//   - unique: there is one possible request, but the message was accepted within that skew of its call, or after a call of
//     unknown fate, or at an unknown time, or perhaps in a call of another sender, whose bounces go to another address, or
//     in one that has another row.
//   - ambiguous: there are several possible requests.
func (x *calls) match(r row) found {
	for _, g := range slices.Backward(x.generations) {
		if h, ok := g.rows[r.id]; ok {
			return foundAt(g, h.recipient, h.exact)
		}
	}
	c := x.candidates(r)
	if len(c.requests) == 1 {
		from := c.best.batch.from
		exact := c.best.inside && !c.several && (!c.rival || from != 0 && r.from.is(from))
		return foundAt(c.best.generation, c.best.recipient, exact)
	}
	f := found{Match: messages.Match{Confidence: messages.MatchNone}}
	if len(c.requests) > 1 {
		f.Confidence, f.Candidates = messages.MatchAmbiguous, c.requests[:min(len(c.requests), maxCandidates)]
		slices.Sort(f.Candidates)
	}
	return f
}

func foundAt(g *generation, i uint32, exact bool) found {
	f := found{place: g.placeOf(i), in: g, at: i}
	f.Confidence, f.Batch = messages.MatchUnique, f.batch
	if exact {
		f.Confidence = messages.MatchExact
	}
	return f
}

// candidates are the calls that a row can be of.
type candidates struct {
	requests []string  // that have no other row; not all, if there are too many
	best     candidate // of these
	several  bool      // it may have been accepted in a call of another batch, which perhaps has a row
	rival    bool      // it was accepted near a call of another sender

	last *batch // that was possible
}

type candidate struct {
	generation *generation
	batch      *batch
	recipient  uint32
	inside     bool // it was accepted during a call of the batch
}

// before puts first the batch that the message was accepted during, and recipients in their order.
func (c candidate) before(d candidate) bool {
	if c.inside != d.inside {
		return c.inside
	}
	return cmp.Or(cmp.Compare(c.batch.number, d.batch.number), cmp.Compare(c.recipient, d.recipient)) < 0
}

func (x *calls) candidates(r row) (c candidates) {
	for _, g := range x.generations {
		for _, address := range r.to {
			if address == 0 {
				continue
			}
			for i := range g.near(address, r) {
				x.steps++
				if c.add(g, i, r); len(c.requests) > maxCandidates {
					return c
				}
			}
		}
	}
	return c
}

// add adds a recipient, if a row can be of it.
func (c *candidates) add(g *generation, i uint32, r row) {
	b, possible := &g.batches[g.recipients[i].batch], false
	n := candidate{generation: g, batch: b, recipient: i}
	for s := range g.spans(g.recipients[i].batch) {
		may, inside := s.holds(r)
		possible, n.inside = possible || may, n.inside || inside
	}
	if !possible || b.replaced {
		return
	}
	if b.from != 0 && r.from[0] != 0 && !r.from.is(b.from) {
		c.rival = true
		return
	}
	c.several = c.several || c.last != nil && c.last != b
	c.last = b
	if !g.isFree(i, r.id) {
		return
	}
	if len(c.requests) == 0 || n.before(c.best) {
		c.best = n
	}
	if id := string(g.id(b.request)); !slices.Contains(c.requests, id) {
		c.requests = append(c.requests, id)
	}
}

// holds reports whether a row may be of a call; inside: the message was accepted during it.
func (s span) holds(r row) (may, inside bool) {
	skew := r.skew()
	at, until := r.accepted, s.end()+skew
	if s.open {
		until = s.end() + maxLateness
	}
	if at == 0 {
		at, until = r.created, s.end()+maxQueueTime.Milliseconds()
	}
	return at == 0 || s.begin-skew <= at && at <= until, r.accepted != 0 && s.begin <= at && at <= s.end() // 0: of no known time
}

// clock measures how far the email service's clock is ahead of ours, by the Date header of its answers. Assumed: that
// is the clock by which the log's times are written, and the clocks of the mail consumer and the poller agree.
//
// A Date of whole seconds in an answer bounds the offset on both sides; answers narrow each other's bounds. If the clock was
// set, or has drifted, they leave nothing, and it starts over.
type clock struct {
	mu        sync.Mutex // pages are read while rows are matched
	low, high time.Duration
	measured  bool
}

// observe records the Date of an answer; an answer without one does not count.
func (c *clock) observe(asked, date, read time.Time) {
	if date.IsZero() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	low, high := date.Sub(read), date.Add(time.Second).Sub(asked)
	if c.measured && c.low <= high && low <= c.high {
		low, high = max(low, c.low), min(high, c.high)
	}
	c.low, c.high, c.measured = low, high, true
}

// offset is the middle of what the answers leave; 0 if among it.
func (c *clock) offset() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.low <= 0 && c.high >= 0 {
		return 0
	}
	return (c.low + c.high) / 2
}
