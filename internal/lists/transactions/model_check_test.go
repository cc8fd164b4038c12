package transactions

import (
	"slices"
	"time"

	"errand/pkg/messages"
)

// find is the record that an event is about.
func (m *model) find(e messages.Event) *transaction {
	r := read(e.Body.(*messages.TransactionBody).Transaction, local)
	for _, t := range slices.Concat(m.service.rows, m.service.gone) {
		if t.id == r.identity && (t.kind == "Deduction") == (e.Operation == messages.Deduction) {
			return t
		}
	}
	m.Fatalf("%s is of no record", e.Subject())
	return nil
}

// count counts an event that is stored.
func (m *model) count(e messages.Event) {
	if e.State != messages.Marked {
		m.times[m.find(e).key(string(e.State))]++
		m.shares[e.Body.(*messages.TransactionBody).Match.Confidence]++
	}
}

// judge wants an event, when it is about to be stored, to be of the request that alone has its order
// number now, among those that are kept, and never of another one than that whose record it is.
func (m *model) judge(e messages.Event) {
	if e.State == messages.Marked {
		return
	}
	b, t := e.Body.(*messages.TransactionBody), m.find(e)
	requests := map[string]time.Time{}
	order := t.order
	if t.bare {
		if order = t.own; t.kind == "Deduction" {
			order = ""
		}
	}
	gone := t.request != "" // the record's request has no event left
	kept, _ := m.stream.After(0)
	for _, s := range kept {
		gone = gone && (s.Other == nil || s.Other.Request != t.request)
		if s.Other == nil || s.Other.Order != order {
			continue
		}
		if s.At.Equal(time.Now()) { // it may have come since the match
			return
		}
		if _, there := requests[s.Other.Request]; !there {
			requests[s.Other.Request] = s.At
		}
	}
	want := messages.MatchAmbiguous
	switch len(requests) {
	case 0:
		want = messages.MatchNone
	case 1:
		for id, since := range requests {
			if want = messages.MatchExact; t.created.Before(since.Add(-early)) {
				want = messages.MatchNone
			} else if b.RequestID != id {
				m.Errorf("%s is of %s", e.Subject(), id)
			} else if gone && e.ID == id && t.created.Before(since) {
				return // made within a day before another request used the order number again: only the lost events knew better
			}
		}
	}
	if b.Match.Confidence != want || want == messages.MatchExact && (e.ID != t.request || t.request == "") || want != messages.MatchExact &&
		e.ID != messages.Unmatched {
		m.Errorf("%s of %q, made %v, is %+v; it is of %q, want %s of %v", e.Subject(), b.OrderNumber, t.created, b.Match, t.request, want,
			requests)
	}
	for _, id := range b.Match.Candidates {
		if _, there := requests[id]; !there {
			m.Errorf("%s names %s, of another order number", e.Subject(), id)
		}
	}
}
