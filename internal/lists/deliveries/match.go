package deliveries

import (
	"slices"
	"time"

	"errand/pkg/messages"
)

// found is the recipient that a row belongs to.
type found struct {
	messages.Match
	place // zero unless exact or unique
}

const (
	// maxSkew is how far the upstream's clock may be off for a match, when it was measured.
	maxSkew = int64(2 * time.Second / time.Millisecond)
	// driftTime is the time in which an unset clock gains or loses one part of it at most: 100 ppm.
	driftTime = 10_000
	// maxLateness is how long after its end a call may still be accepted whose fate is unknown.
	maxLateness = int64(15 * time.Minute / time.Millisecond)
	// maxQueueTime is the maximum time from acceptance to a row: mail servers give up after five days (RFC 5321).
	maxQueueTime = 5 * 24 * time.Hour
)

// match returns the call that a row belongs to.
//
//   - exact: the message was accepted during one call, and during no other one even if
//     the two clocks differ by the row's skew. Nothing else proves that a call was accepted.
//   - unique: there is one possible call, but the message was accepted within the skew of it, or
//     after a call of unknown fate, or at an unknown time, or perhaps in a call of another sender,
//     whose bounces go to another address.
//   - ambiguous: there are several possible calls.
func (x *calls) match(r row) found {
	c := x.candidates(r)
	f := found{Match: messages.Match{Confidence: messages.MatchNone}}
	if len(c.likely) > 1 {
		f.Confidence, f.Candidates = messages.MatchAmbiguous, c.requests()
	}
	if len(c.likely) != 1 {
		return f
	}
	only := c.likely[0]
	f.Confidence, f.Batch, f.place = messages.MatchUnique, only.place.batch, only.place
	if c.inside && (!c.rival || only.from != 0 && r.from.is(only.from)) {
		f.Confidence = messages.MatchExact
	}
	return f
}

// candidates are the calls that a row can be of.
type candidates struct {
	likely []candidate
	inside bool // it was accepted during one of them
	rival  bool // it was accepted near a call of another sender
}

type candidate struct {
	*batch
	place place
	calls int // of the batch
}

func (x *calls) candidates(r row) (c candidates) {
	addresses := r.to.keys()
	for _, g := range x.generations {
		for _, address := range addresses {
			for n := g.heads[address]; n > 0; n = g.recipients[n-1].previous {
				c.add(g, n-1, r)
			}
		}
	}
	return c
}

// add adds the batch of a recipient, by its index, if a row to the recipient can be of it.
func (c *candidates) add(g *generation, index uint32, r row) {
	b := &g.batches[g.recipients[index].batch]
	calls, inside := b.callsOf(r)
	switch other := b.from != 0 && r.from.plain != 0 && !r.from.is(b.from); {
	case calls == 0:
	case other:
		c.rival = true
	default:
		c.likely = append(c.likely, candidate{b, place{b.request.id, int(b.number), int(b.first) + int(index-b.start)}, calls})
		c.inside = c.inside || inside
	}
}

// callsOf is the number of calls of the batch that a row may be of. inside: the message was
// accepted during one of them.
func (b *batch) callsOf(r row) (n int, inside bool) {
	skew := r.skew()
	for _, s := range b.spans {
		at, until := r.accepted, s.end+skew
		if s.open {
			until = s.end + maxLateness
		}
		if at == 0 {
			at, until = r.created, s.end+maxQueueTime.Milliseconds()
		}
		if at == 0 || s.begin-skew <= at && at <= until { // 0: of no known time
			n++
		}
		inside = inside || r.accepted != 0 && s.begin <= at && at <= s.end
	}
	return n, inside
}

// maxCandidates is the maximum number of candidates in an event.
const maxCandidates = 20

func (c *candidates) requests() (ids []string) {
	for _, l := range c.likely {
		if len(ids) < maxCandidates && !slices.Contains(ids, l.place.request) {
			ids = append(ids, l.place.request)
		}
	}
	slices.Sort(ids)
	return ids
}
