package transactions

import (
	"context"
	"fmt"
	"hash/maphash"
	"iter"
	"slices"
	"time"

	"errand/pkg/messages"
)

// Enrollments reads what was published of enrollments.
type Enrollments interface {
	// Candidates yields, in the order of the stream, what it has not yielded before.
	Candidates(ctx context.Context) iter.Seq2[Candidate, error]
	// Request returns the id of the request whose event has a sequence; "" if that event is gone.
	Request(ctx context.Context, sequence uint64) (string, error)
	// First is the sequence of the oldest event that is kept.
	First(ctx context.Context) (uint64, error)
}

// Candidate is an event by which a request may own the records of an order number, or no longer does.
type Candidate struct {
	Sequence uint64
	Request  string
	Order    string
	At       time.Time // when it was stored
	Failed   bool      // without effect; otherwise it announces a call
}

// orders are the requests by order number, each known by its newest event's sequence: an id takes several times the memory.
type orders struct {
	places map[uint64][]place // by order number, oldest first
	until  time.Time          // when requests whose events are gone are forgotten next
}

// place is where a request is found.
type place struct {
	sequence uint64
	request  uint32 // hash of its id: the event at the sequence may be another's by now
	since    uint32 // when its first call was announced, as far as is known: seconds since 1970
}

// forgetEvery is how often what the stream has dropped is forgotten.
const forgetEvery = time.Hour

func (o *orders) update(ctx context.Context, from Enrollments) error {
	if o.places == nil {
		o.places = map[uint64][]place{}
	}
	for c, err := range from.Candidates(ctx) {
		if err != nil {
			return fmt.Errorf("transactions: read enrollments: %w", err)
		}
		order, request := fold(c.Order), hashOf(c.Request)
		if c.Failed {
			o.remove(order, func(p place) bool { return p.request == request })
		} else {
			o.add(order, place{c.Sequence, request, uint32(c.At.Unix())})
		}
	}
	if now := time.Now(); now.After(o.until) {
		o.until = now.Add(forgetEvery)
		oldest, err := from.First(ctx)
		if err != nil {
			return fmt.Errorf("transactions: read since when enrollments are kept: %w", err)
		}
		for order := range o.places {
			o.remove(order, func(p place) bool { return p.sequence < oldest })
		}
	}
	return nil
}

// add notes that an event of a request names an order number.
func (o *orders) add(order uint64, p place) {
	all := o.places[order]
	if i := slices.IndexFunc(all, func(other place) bool { return other.request == p.request }); i >= 0 {
		p.since = all[i].since
		all[i] = p
		return
	}
	if all = append(all, p); len(all) > 1+maxCandidates {
		all[2].request, all[2].sequence = several, max(all[1].sequence, all[2].sequence)
		all = slices.Delete(all, 1, 2)
	}
	o.places[order] = all
}

// maxCandidates is how many requests an ambiguous match names. Of more, one place stands for all but the first and the last.
const (
	maxCandidates = 10
	several       = 0
)

func (o *orders) remove(order uint64, gone func(place) bool) {
	if o.places[order] = slices.DeleteFunc(o.places[order], gone); len(o.places[order]) == 0 {
		delete(o.places, order)
	}
}

// early is how long before the first call of a request a record may have been made that is of
// it: dates have no zone, and clocks differ. One that is older is of an earlier enrollment.
const early = 24 * time.Hour

// match returns a record's request: exact if one request alone has its order number. For deductions, which are many, no more than
// one event is read.
func (o *orders) match(ctx context.Context, from Enrollments, r Record) (messages.TransactionMatch, error) {
	match, found := messages.TransactionMatch{Confidence: messages.MatchNone}, 0
	for i, name := range r.names {
		places := o.places[fold(name)]
		if r.Kind == messages.Deduction && len(places) > 1 {
			return messages.TransactionMatch{Confidence: messages.MatchAmbiguous}, nil
		}
		for _, p := range places {
			if p.request == several {
				found, match.Confidence = found+1, messages.MatchAmbiguous
			}
			if p.request == several || len(match.Candidates) == maxCandidates {
				continue
			}
			id, err := from.Request(ctx, p.sequence)
			if err != nil {
				return match, fmt.Errorf("transactions: read the request of an order number: %w", err)
			}
			if hashOf(id) != p.request { // it is gone
				continue
			}
			found++
			match.Candidates = append(match.Candidates, id)
			switch older := !r.At.IsZero() && r.At.Before(time.Unix(int64(p.since), 0).Add(-early)); {
			case found > 1, i > 0 && !older: // of the record itself, and the mandate has another
				match.Confidence = messages.MatchAmbiguous
			case !older:
				match.Confidence = messages.MatchExact
			}
		}
	}
	if match.Confidence == messages.MatchNone {
		match.Candidates = nil
	}
	return match, nil
}

var seed = maphash.MakeSeed()

func hashOf(request string) uint32 { return uint32(maphash.String(seed, request)) }

// fold is the same for all spellings of an order number.
func fold(order string) uint64 { return maphash.String(seed, messages.OrderKey(order)) }
