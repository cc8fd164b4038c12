package transactions

import (
	"context"
	"fmt"
	"hash/maphash"
	"iter"
	"slices"
	"strings"
	"time"

	"errand/pkg/messages"
)

// Enrollments gives what was published of enrollments.
type Enrollments interface {
	// Started gives the events that announce calls, those that it did not give before.
	Started(ctx context.Context) iter.Seq2[Started, error]
	// Request gives the id of the request whose event has a sequence; "": it is there no more.
	Request(ctx context.Context, sequence uint64) (string, error)
	// First is the sequence of the oldest event that is kept.
	First(ctx context.Context) (uint64, error)
}

// Started is an event that announces a call.
type Started struct {
	Sequence uint64
	Request  string
	Order    string
}

// orders are the requests by order number. One is known by the sequence of its first event
// that is kept: an id takes several times as much memory.
type orders struct {
	first map[uint64]place   // by order number
	more  map[uint64][]place // further requests of an order number
	until time.Time          // when what is kept no more is forgotten next
}

// place is where a request is found.
type place struct {
	sequence uint64
	request  uint64 // tells it from others
}

// forgetEvery is how often what the stream has dropped is forgotten.
const forgetEvery = time.Hour

// update learns what was published since the last time.
func (o *orders) update(ctx context.Context, from Enrollments) error {
	if o.first == nil {
		o.first, o.more = map[uint64]place{}, map[uint64][]place{}
	}
	for s, err := range from.Started(ctx) {
		if err != nil {
			return fmt.Errorf("transactions: read enrollments: %w", err)
		}
		o.add(fold(s.Order), place{s.Sequence, maphash.String(seed, s.Request)})
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
	switch {
	case !there || have.request == p.request:
		o.first[order] = p
		return
	}
	others := o.more[order]
	if i := slices.IndexFunc(others, func(other place) bool { return other.request == p.request }); i >= 0 {
		others[i] = p
		return
	}
	o.more[order] = append(others, p)
}

func (o *orders) forget(oldest uint64) {
	for order, p := range o.first {
		if p.sequence >= oldest {
			continue
		}
		rest := slices.DeleteFunc(o.more[order], func(p place) bool { return p.sequence < oldest })
		delete(o.more, order)
		if len(rest) == 0 {
			delete(o.first, order)
			continue
		}
		if o.first[order] = rest[0]; len(rest) > 1 {
			o.more[order] = rest[1:]
		}
	}
}

// maxCandidates is how many requests an ambiguous match names.
const maxCandidates = 10

// match is the request of an order number: exact where it is that of one alone.
func (o *orders) match(ctx context.Context, from Enrollments, order string) (messages.TransactionMatch, error) {
	none := messages.TransactionMatch{Confidence: messages.MatchNone}
	key := fold(order)
	first, there := o.first[key]
	if order == "" || !there {
		return none, nil
	}
	var ids []string
	for _, p := range append([]place{first}, o.more[key]...) {
		if len(ids) == maxCandidates {
			break
		}
		id, err := from.Request(ctx, p.sequence)
		if err != nil {
			return none, fmt.Errorf("transactions: read the request of an order number: %w", err)
		}
		if id != "" {
			ids = append(ids, id)
		}
	}
	switch len(ids) {
	case 0:
		return none, nil
	case 1:
		return messages.TransactionMatch{Confidence: messages.MatchExact, Candidates: ids}, nil
	}
	return messages.TransactionMatch{Confidence: messages.MatchAmbiguous, Candidates: ids}, nil
}

// fold is the same for all spellings of an order number: who stores them may have changed
// case and spaces.
func fold(order string) uint64 {
	return maphash.String(seed, strings.ToLower(strings.Join(strings.Fields(order), "")))
}
