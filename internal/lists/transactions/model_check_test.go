package transactions

import (
	"slices"
	"time"

	"errand/internal/mandates"
	"errand/pkg/messages"
)

// find is the record that an event is about.
func (m *model) find(e messages.Event) *transaction {
	r := read(e.Body.(*messages.TransactionBody).Transaction, local)
	for _, t := range slices.Concat(m.service.rows, m.service.gone) {
		if mandates.ReadRecord(r.Raw).ID == t.id && (t.kind == "Deduction") == (e.Operation == messages.Deduction) {
			return t
		}
	}
	m.Fatalf("%s is of no record", e.Subject())
	return nil
}

// published is an event of a record.
type published struct {
	status, mandate string
	at              time.Time
}

// count counts an event that is stored.
func (m *model) count(e messages.Event) {
	if e.State != messages.Marked {
		b := e.Body.(*messages.TransactionBody)
		key := m.find(e).key()
		m.events[key] = append(m.events[key], published{string(e.State), b.MandateStatus, time.Now()})
		m.shares[b.Match.Confidence]++
	}
}

// check wants each state that lasted for long enough while a poller was at work to be the last one published before it ended, and
// each event to be of a later state than the one before.
func (m *model) check(t *transaction) {
	events := m.events[t.key()]
	m.published += len(events)
	last, lastAt := -1, -1 // event, and the state that it is of
	for i, e := range events {
		at := -1
		for j, s := range t.states {
			if s.status == e.status && s.mandate == e.mandate && !s.since.After(e.at) {
				at = j
			}
		}
		again := i > 0 && e.status == events[i-1].status && e.mandate == events[i-1].mandate &&
			!slices.ContainsFunc(t.states[max(lastAt, 0):at+1], func(s state) bool { return s.excused })
		if at <= lastAt || again {
			m.Errorf("%s, made %v: event %d is of state %d, event %d of %d\nstates %v\nevents %v", t.key(), t.created, last, lastAt, i, at,
				t.states, events)
		}
		if at > 0 && slices.ContainsFunc(t.states[:at], func(s state) bool { return s.status == e.status && s.mandate == e.mandate }) {
			m.returns++
		}
		last, lastAt = i, at
	}
	for i, s := range t.states {
		until := time.Now()
		if !t.left.IsZero() {
			until = t.left
		}
		if i+1 < len(t.states) {
			until = t.states[i+1].since
		}
		is := published{}
		for _, e := range events {
			if !e.at.After(until) {
				is = e
			}
		}
		if !s.excused && m.shown(s.since, until) && (is.status != s.status || t.kind != "Deduction" && is.mandate != s.mandate) {
			m.Errorf("%s, made %v: state %d, until %v, is not published\nstates %v\nevents %v", t.key(), t.created, i, until, t.states, events)
		}
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
		subject, body := messages.ParseSubject(s.Subject), messages.EnrollResolved{}
		if subject.Operation != messages.Enroll || messages.DecodeEvent(s.Body, &body) != nil {
			continue
		}
		gone = gone && subject.ID != t.request
		if body.OrderNumber != order {
			continue
		}
		if s.At.Equal(time.Now()) { // it may have come since the match
			return
		}
		if m.stream.Age > 0 && s.At.Before(m.kept()) { // it is being forgotten
			return
		}
		if _, there := requests[subject.ID]; subject.State == messages.Failed {
			delete(requests, subject.ID)
		} else if !there {
			requests[subject.ID] = s.At
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
