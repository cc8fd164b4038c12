package match

import (
	"slices"
	"strconv"
	"time"

	"errand/pkg/messages"
)

// Row is what a row of the sending log says that helps.
type Row struct {
	To, From messages.Key
	Accepted time.Time // when the upstream took the message; zero: not known
	Created  time.Time // when the row was made; zero: not known
}

// Match is the recipient that a row tells of.
type Match struct {
	Confidence messages.Confidence
	Request    string   // "" unless it is exact or unique
	Batch      int      // from 1
	Recipient  int      // index into the request's recipients, from 0
	Candidates []string // request ids, when ambiguous
	Doubtful   bool     // it is none, but may be of a call of unknown fate by a wrong clock
}

const (
	// skew is how far the upstream's clock may be off for a match.
	skew = 2 * time.Second
	// astray is how far it may be off for a row to be a doubt about a call of unknown fate.
	astray = time.Hour
	// queued is how long a message may be on its way to its row when nothing but the
	// row's own time is known: mail servers give up after five days (RFC 5321).
	queued = 5 * 24 * time.Hour
)

// Find gives the call that a row belongs to. exact: the acceptance lies in the span of
// one call, and in that of no other even if the two clocks differ a little. unique: it
// lies there but for the difference of the clocks, or after a call of unknown fate, or is
// not known, and there is one call that it can be. ambiguous: there are several.
func (x *Index) Find(r Row) Match {
	found, best := x.candidates(r)
	switch {
	case best < nearSpan:
		return Match{Confidence: messages.MatchNone, Doubtful: best == astraySpan}
	case len(found) > 1:
		return ambiguous(found)
	case best == insideSpan:
		return found[0].match(messages.MatchExact)
	}
	return found[0].match(messages.MatchUnique)
}

// candidates are the batches that a row can be of; where there is none, those that it
// is a doubt about.
func (x *Index) candidates(r Row) (found []candidate, best place) {
	for _, g := range x.generations {
		for n := g.heads[r.To]; n > 0; n = g.entries[n-1].prior {
			e := g.entries[n-1]
			b := &g.batches[e.batch]
			if b.from != 0 && r.From != 0 && b.from != r.From {
				continue
			}
			at := b.within(r)
			if at == outside || at == astraySpan && best > at {
				continue
			}
			if best == astraySpan && at > best {
				found = nil
			}
			found, best = append(found, candidate{b, int(b.first) + int(e.at)}), max(best, at)
		}
	}
	return found, best
}

type place int

const (
	outside place = iota
	astraySpan
	nearSpan
	insideSpan
)

// within is the best place that a row has in any of the spans.
func (b *batch) within(r Row) (best place) {
	const skew, astray, queued = int64(skew / time.Millisecond), int64(astray / time.Millisecond), int64(queued / time.Millisecond)
	if r.Accepted.IsZero() && r.Created.IsZero() {
		return nearSpan
	}
	for _, s := range b.spans {
		at, until := r.Accepted.UnixMilli(), max(s.end+skew, s.late)
		if r.Accepted.IsZero() {
			at, until = r.Created.UnixMilli(), s.end+queued
		}
		switch open := !b.accepted && s.late > s.end; {
		case !r.Accepted.IsZero() && s.begin <= at && at <= s.end:
			best = insideSpan
		case s.begin-skew <= at && at <= until:
			best = max(best, nearSpan)
		case open && s.begin-astray <= at && at <= s.end+astray:
			best = max(best, astraySpan)
		}
	}
	return best
}

type candidate struct {
	*batch
	recipient int
}

func (c candidate) match(how messages.Confidence) Match {
	return Match{Confidence: how, Request: c.request, Batch: int(c.number), Recipient: c.recipient}
}

// mostCandidates bounds what an event lists.
const mostCandidates = 20

func ambiguous(all []candidate) Match {
	m := Match{Confidence: messages.MatchAmbiguous}
	for _, c := range all {
		if len(m.Candidates) < mostCandidates && !slices.Contains(m.Candidates, c.request) {
			m.Candidates = append(m.Candidates, c.request)
		}
	}
	slices.Sort(m.Candidates)
	return m
}

// acceptedDigits of an envelope_id are the milliseconds since 1970 at which the message
// was accepted, in hexadecimal. Not documented by the upstream; seen and assumed.
const acceptedDigits = 11

// AcceptedAt reads the time of acceptance from an envelope_id; zero when it holds none
// that goes with the row's own time, which must be known.
func AcceptedAt(envelope string, created time.Time) time.Time {
	if len(envelope) != 18 {
		return time.Time{}
	}
	for _, c := range []byte(envelope) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') && (c < 'A' || c > 'F') {
			return time.Time{}
		}
	}
	ms, err := strconv.ParseInt(envelope[:acceptedDigits], 16, 64)
	if err != nil {
		return time.Time{}
	}
	at := time.UnixMilli(ms)
	if at.After(created.Add(time.Minute)) || at.Before(created.Add(-queued)) {
		return time.Time{}
	}
	return at
}
