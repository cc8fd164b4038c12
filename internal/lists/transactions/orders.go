package transactions

import (
	"context"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"time"

	"errand/internal/history"
	"errand/internal/lists"
	"errand/pkg/messages"
)

// orders are the requests by order number, of enrollments whose events are kept.
type orders map[uint64]*owner

// owner is a request that may own the records of an order number: it announced a call, and did not fail without effect.
type owner struct {
	request string // "" stands for several, all but the first and the last
	since   uint32 // when its first call was announced, as far as is known: seconds since 1970
	last    uint32 // when the last one was
	next    *owner // a younger one of the same order number
}

// of are the owners of an order number, oldest first.
func (o orders) of(order uint64) (all []owner) {
	for p := o[order]; p != nil; p = p.next {
		all = append(all, *p)
	}
	return all
}

func (o orders) set(order uint64, all []owner) {
	delete(o, order)
	for _, one := range slices.Backward(all) {
		one.next = o[order]
		o[order] = &one
	}
}

// update reads the enrollments' events that are new.
func (o orders) update(ctx context.Context, from lists.Store) error {
	for e, err := range from.Requests(ctx, time.Time{}) {
		if err != nil {
			return fmt.Errorf("transactions: read enrollments: %w", err)
		}
		o.take(e)
	}
	return nil
}

// take reads what a call, a failure or a resolution says of an order number. A request with records has had an effect.
func (o orders) take(e history.Entry) {
	var b messages.EnrollResolved
	if messages.DecodeEvent(e.Body, &b) != nil || b.OrderNumber == "" || b.Outcome == messages.Succeeded || len(b.Evidence) > 0 {
		return
	}
	order, subject := fold(b.OrderNumber), messages.ParseSubject(e.Subject)
	if subject.State == messages.Started {
		o.add(order, subject.ID, uint32(e.At.Unix()))
	} else {
		o.remove(order, func(other owner) bool { return other.request == subject.ID })
	}
}

// maxCandidates is how many requests an ambiguous match names. Of more, one owner stands for all but the first and the last.
const maxCandidates = 10

func (o orders) add(order uint64, request string, at uint32) {
	all := o.of(order)
	if i := slices.IndexFunc(all, func(other owner) bool { return other.request == request }); i >= 0 {
		all[i].last = at
	} else if all = append(all, owner{request: strings.Clone(request), since: at, last: at}); len(all) > 1+maxCandidates {
		all[2].request, all[2].last = "", max(all[1].last, all[2].last)
		all = slices.Delete(all, 1, 2)
	}
	o.set(order, all)
}

func (o orders) remove(order uint64, gone func(owner) bool) {
	o.set(order, slices.DeleteFunc(o.of(order), gone))
}

// forget forgets requests whose last call was announced before a time: their events are gone.
func (o orders) forget(before time.Time) {
	for order := range o {
		o.remove(order, func(other owner) bool { return int64(other.last) < before.Unix() })
	}
}

// early is how long before the first call of a request a record may have been made that is of
// it: dates have no zone, and clocks differ. One that is older is of an earlier enrollment.
const early = 24 * time.Hour

// match returns a record's request: exact if one request alone has its order number. Deductions, which are many, name no others.
func (o orders) match(r Record) messages.TransactionMatch {
	match, found := messages.TransactionMatch{Confidence: messages.MatchNone}, 0
	for i, name := range r.names {
		owners := o.of(fold(name))
		if r.Kind == messages.Deduction && len(owners) > 1 {
			return messages.TransactionMatch{Confidence: messages.MatchAmbiguous}
		}
		for _, owner := range owners {
			found++
			if owner.request != "" && len(match.Candidates) < maxCandidates {
				match.Candidates = append(match.Candidates, owner.request)
			}
			switch older := !r.At.IsZero() && r.At.Before(time.Unix(int64(owner.since), 0).Add(-early)); {
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
	return match
}

var seed = maphash.MakeSeed()

// fold is the same for all spellings of an order number.
func fold(order string) uint64 { return maphash.String(seed, messages.OrderKey(order)) }
