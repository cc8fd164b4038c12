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
	"errand/internal/lists/sweep"
	"errand/internal/mandates"
	"errand/internal/wire"
	"errand/pkg/messages"
)

// orders are the requests by order number, of enrollments whose events are kept.
type orders map[uint64][]owner // oldest first

// owner is a request that may own the records of an order number: it announced a call, and did not fail without effect.
type owner struct {
	request string
	since   uint32 // when its first call was announced, as far as is known: seconds since 1970
	last    uint32 // when the last one was
}

// update reads the enrollments' events that are new.
func (o orders) update(ctx context.Context, from lists.Store) error {
	if err := from.Requests(ctx, time.Time{}, o.take); err != nil {
		return fmt.Errorf("transactions: read enrollments: %w", err)
	}
	return nil
}

// take reads what a call, a failure or a resolution says of an order number, if it can. A request with records has had an effect.
func (o orders) take(e history.Entry) error {
	var b messages.EnrollResolved
	if messages.DecodeEvent(e.Body, &b) != nil || b.OrderNumber == "" || b.Outcome == messages.Succeeded || len(b.Evidence) > 0 {
		return nil
	}
	order, subject := fold(b.OrderNumber), messages.ParseSubject(e.Subject)
	if subject.State == messages.Started {
		o.add(order, subject.ID, uint32(e.At.Unix()))
	} else {
		o.remove(order, func(other owner) bool { return other.request == subject.ID })
	}
	return nil
}

// maxCandidates is how many requests an ambiguous match names. Of more, the first and the last ones are kept.
const maxCandidates = 10

func (o orders) add(order uint64, request string, at uint32) {
	all := o[order]
	if i := slices.IndexFunc(all, func(other owner) bool { return other.request == request }); i >= 0 {
		all[i].last = at
	} else if all = append(all, owner{request: strings.Clone(request), since: at, last: at}); len(all) > maxCandidates {
		all = slices.Delete(all, 1, 2)
	}
	o[order] = all
}

func (o orders) remove(order uint64, gone func(owner) bool) {
	if o[order] = slices.DeleteFunc(o[order], gone); len(o[order]) == 0 {
		delete(o, order)
	}
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
	match := messages.TransactionMatch{Confidence: messages.MatchNone}
	for i, name := range r.names {
		owners := o[fold(name)]
		if r.Kind == messages.Deduction && len(owners) > 1 {
			return messages.TransactionMatch{Confidence: messages.MatchAmbiguous}
		}
		for _, owner := range owners {
			match.Candidates = append(match.Candidates, owner.request)
			switch older := !r.At.IsZero() && r.At.Before(time.Unix(int64(owner.since), 0).Add(-early)); {
			case len(match.Candidates) > 1, i > 0 && !older: // of the record itself, and the mandate has another
				match.Confidence = messages.MatchAmbiguous
			case !older:
				match.Confidence = messages.MatchExact
			}
		}
	}
	match.Candidates = match.Candidates[:min(len(match.Candidates), maxCandidates)]
	if match.Confidence == messages.MatchNone {
		match.Candidates = nil
	}
	return match
}

var seed = maphash.MakeSeed()

// fold is the same for all spellings of an order number.
func fold(order string) uint64 { return maphash.String(seed, wire.OrderKey(order)) }

// application names an application of a request; zero: two were reported, which is enough.
type application struct {
	key  uint64
	kind string
}

// compare reports a request that has another application than this one, whose event is not stored yet.
func (l *List) compare(ctx context.Context, request string, r Record) error {
	first, known := l.applications[request]
	if !known {
		b, err := l.lastApplication(ctx, request)
		if err != nil {
			return err
		}
		first = application{r.key, r.kind}
		if id, ok := sweep.ParseID(b.EventID); ok {
			first.key, first.kind = id.Key(), strings.ToLower(mandates.ReadRecord(b.Transaction).Type)
		}
	}
	if len(l.applications) >= maxRemembered {
		clear(l.applications)
	}
	// A change or the end of a mandate is an application of another kind.
	if first.key != r.key && first.kind == r.kind && first != (application{}) {
		l.Duplicate(request)
		first = application{}
	}
	l.applications[request] = first
	return nil
}

// lastApplication is the last event about an application of a request, as far as it can be read.
func (l *List) lastApplication(ctx context.Context, request string) (b messages.TransactionBody, err error) {
	last, err := l.Last(ctx, messages.Application, messages.Application.Subject("*", request))
	if err != nil {
		return b, fmt.Errorf("transactions: read a request's last application: %w", err)
	}
	if messages.DecodeEvent(last.Body, &b) != nil {
		return messages.TransactionBody{}, nil
	}
	return b, nil
}
