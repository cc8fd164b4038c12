package match

import (
	"slices"
	"strconv"
	"time"

	"errand/pkg/messages"
)

// Row is what a match needs to know of a row of the sending log.
type Row struct {
	To, From messages.Key
	Accepted time.Time // when the upstream accepted the message; zero: unknown
	Created  time.Time // when the row was created; zero: unknown
}

// Match is the recipient that a row belongs to.
type Match struct {
	Confidence messages.Confidence
	Request    string   // "" unless exact or unique
	Batch      int      // from 1
	Recipient  int      // index into the request's recipients, from 0
	Candidates []string // request ids, if ambiguous
	Doubtful   bool     // no match, unless the upstream's clock is wrong: then perhaps of a call of unknown fate
}

const (
	// maxSkew is how far the upstream's clock may be off for a match.
	maxSkew = 2 * time.Second
	// doubtSkew is how far it may be off for a row to raise a doubt about a call of
	// unknown fate.
	doubtSkew = time.Hour
	// maxQueueTime is the maximum time from the acceptance of a message to its row, used
	// when only the row's own time is known: mail servers give up after five days
	// (RFC 5321).
	maxQueueTime = 5 * 24 * time.Hour
)

// Find returns the call that a row belongs to.
//
//   - exact: the message was accepted during one call, and during no other one even if
//     the two clocks differ by maxSkew.
//   - unique: there is one possible call; the message was accepted within maxSkew of it,
//     or after a call of unknown fate, or the time of acceptance is unknown.
//   - ambiguous: there are several possible calls.
func (x *Index) Find(r Row) Match {
	found, best := x.candidates(r)
	switch {
	case best < nearSpan:
		return Match{Confidence: messages.MatchNone, Doubtful: best == strayFromSpan}
	case len(found) > 1:
		return ambiguous(found)
	case best == insideSpan:
		return found[0].match(messages.MatchExact)
	}
	return found[0].match(messages.MatchUnique)
}

// candidates returns the batches that a row can belong to or, if there is none, those
// that it raises a doubt about.
func (x *Index) candidates(r Row) (found []candidate, best place) {
	for _, g := range x.generations {
		for n := g.heads[r.To]; n > 0; n = g.entries[n-1].previous {
			e := g.entries[n-1]
			b := &g.batches[e.batch]
			if b.from != 0 && r.From != 0 && b.from != r.From {
				continue
			}
			at := b.within(r)
			if at == outside || at == strayFromSpan && best > at {
				continue
			}
			if best == strayFromSpan && at > best {
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
	strayFromSpan
	nearSpan
	insideSpan
)

// within is the best place of a row in any of the spans.
func (b *batch) within(r Row) (best place) {
	const maxSkew, doubtSkew, maxQueueTime = int64(maxSkew / time.Millisecond), int64(doubtSkew / time.Millisecond), int64(maxQueueTime / time.Millisecond)
	if r.Accepted.IsZero() && r.Created.IsZero() {
		return nearSpan
	}
	for _, s := range b.spans {
		at, until := r.Accepted.UnixMilli(), max(s.end+maxSkew, s.late)
		if r.Accepted.IsZero() {
			at, until = r.Created.UnixMilli(), s.end+maxQueueTime
		}
		switch open := !b.accepted && s.late > s.end; {
		case !r.Accepted.IsZero() && s.begin <= at && at <= s.end:
			best = insideSpan
		case s.begin-maxSkew <= at && at <= until:
			best = max(best, nearSpan)
		case open && s.begin-doubtSkew <= at && at <= s.end+doubtSkew:
			best = max(best, strayFromSpan)
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

// maxCandidates is the maximum number of candidates in an event.
const maxCandidates = 20

func ambiguous(all []candidate) Match {
	m := Match{Confidence: messages.MatchAmbiguous}
	for _, c := range all {
		if len(m.Candidates) < maxCandidates && !slices.Contains(m.Candidates, c.request) {
			m.Candidates = append(m.Candidates, c.request)
		}
	}
	slices.Sort(m.Candidates)
	return m
}

// acceptedDigits is the number of leading digits of an envelope_id that are the time of
// acceptance: milliseconds since 1970, in hexadecimal. The upstream does not document it;
// observed and assumed.
const acceptedDigits = 11

// AcceptedAt reads the time of acceptance from an envelope_id. It is zero if there is
// none, or if it does not fit the row's own time, which must be known.
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
	if at.After(created.Add(time.Minute)) || at.Before(created.Add(-maxQueueTime)) {
		return time.Time{}
	}
	return at
}
