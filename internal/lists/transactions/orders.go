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
	first map[uint64]place   // by order number
	more  map[uint64][]place // further requests of an order number
	until time.Time          // when requests whose events are gone are forgotten next
}

// place is where a request is found.
type place struct {
	sequence uint64
	request  uint64 // hash of its id: the event at the sequence may be another's by now
	since    int64  // when its first call was announced, as far as is known: seconds since 1970
}

// forgetEvery is how often what the stream has dropped is forgotten.
const forgetEvery = time.Hour

func (o *orders) update(ctx context.Context, from Enrollments) error {
	if o.first == nil {
		o.first, o.more = map[uint64]place{}, map[uint64][]place{}
	}
	for c, err := range from.Candidates(ctx) {
		if err != nil {
			return fmt.Errorf("transactions: read enrollments: %w", err)
		}
		order, request := fold(c.Order), maphash.String(seed, c.Request)
		if c.Failed {
			o.remove(order, func(p place) bool { return p.request == request })
		} else {
			o.add(order, place{c.Sequence, request, c.At.Unix()})
		}
	}
	if now := time.Now(); now.After(o.until) {
		o.until = now.Add(forgetEvery)
		oldest, err := from.First(ctx)
		if err != nil {
			return fmt.Errorf("transactions: read since when enrollments are kept: %w", err)
		}
		o.forget(oldest)
	}
	return nil
}

// add notes that an event of a request names an order number. The newest one is kept the longest.
func (o *orders) add(order uint64, p place) {
	have, there := o.first[order]
	if there && have.request == p.request {
		p.since = have.since
	}
	if !there || have.request == p.request {
		o.first[order] = p
		return
	}
	others := o.more[order]
	if i := slices.IndexFunc(others, func(other place) bool { return other.request == p.request }); i >= 0 {
		p.since = others[i].since
		others = slices.Delete(others, i, i+1)
	}
	if others = append(others, p); len(others) > maxCandidates {
		others = others[1:]
		others[0].request = several
	}
	o.more[order] = others
}

// maxCandidates is how many requests an ambiguous match names. One place stands for all older ones.
const (
	maxCandidates = 10
	several       = 0
)

func (o *orders) forget(oldest uint64) {
	for order, p := range o.first {
		if p.sequence < oldest || len(o.more[order]) > 0 {
			o.remove(order, func(p place) bool { return p.sequence < oldest })
		}
	}
}

func (o *orders) remove(order uint64, gone func(place) bool) {
	places := slices.DeleteFunc(o.of(order), gone)
	delete(o.more, order)
	if len(places) == 0 {
		delete(o.first, order)
		return
	}
	if o.first[order] = places[0]; len(places) > 1 {
		o.more[order] = places[1:]
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
		places := o.of(fold(name))
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
			if maphash.String(seed, id) != p.request { // it is gone
				continue
			}
			found++
			match.Candidates = append(match.Candidates, id)
			switch older := !r.At.IsZero() && r.At.Before(time.Unix(p.since, 0).Add(-early)); {
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

func (o *orders) of(order uint64) []place {
	if first, there := o.first[order]; there {
		return append([]place{first}, o.more[order]...)
	}
	return nil
}

var seed = maphash.MakeSeed()

// fold is the same for all spellings of an order number.
func fold(order string) uint64 { return maphash.String(seed, messages.OrderKey(order)) }
