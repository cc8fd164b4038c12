package index

import (
	"slices"
	"strings"

	"errand/internal/bus"
	"errand/internal/history"
	"errand/internal/names"
	"errand/internal/oncall/inspect"
	"errand/internal/wire/mailkey"
	"errand/pkg/messages"
)

// batch is what a page of messages of one stream says, ready to be written.
type batch struct {
	requests map[key]*news
	order    []*news // as they were met
	names    []name
	rows     []row
	erased   []row // of the sending log: their events and requests
	tally    map[tally]int
	secrets  map[string]struct{}
}

type key struct {
	id        string
	operation messages.Operation
}

// news is what a batch says of a request.
type news struct {
	key
	Kind    // of its last event; without a state when the batch has no event of it
	began   int64
	seq, at int64 // of the last event
	attempt int
	http    int
	dead    int64 // sequence of the first dead letter of its last ending in the batch, or 0
	ended   int64 // sequence of that ending; 0 if the letter does not say it
	seen    int64 // of the last one that a person discarded
	n       int64 // its row, once it is written
	erased  bool
}

type name struct {
	hash int64
	what int // its place in whats
	of   *news
}

// row is a message that itself says more of a name: a row of the sending log, or what matches no request.
type row struct {
	stream    int // its place in followed
	seq, hash int64
	event     int64 // hash of the event's id, by which it is erased
	of        *news // nil when it matches no request
}

// tally is what events are counted together by.
type tally struct {
	slot int64
	Kind
}

// gather reads a page of messages of a stream. What cannot be read says nothing: it is there by its subject alone.
func (x *Index) gather(page []bus.Message) *batch {
	b := &batch{requests: map[key]*news{}, tally: map[tally]int{}, secrets: map[string]struct{}{}}
	for i := range page {
		m := &page[i]
		if strings.HasPrefix(m.Subject, "audit.") {
			if op, id, letter := x.Discarded(*m); numberOf(op) > 0 {
				b.of(key{id, op}, m).seen = int64(letter)
			}
			continue
		}
		s := messages.ParseSubject(m.Subject)
		op, id := s.Request()
		if s.Dead {
			id = m.Header.Get(bus.HeaderRequestID)
		}
		k := key{id, op}
		switch {
		case id == "" || numberOf(op) == 0:
		case s.Operation == messages.Delivery:
			x.delivery(b, s, m)
		case id == messages.Unmatched:
			names.Each(s.Operation, m.Data, func(n names.Name) bool {
				b.rows = append(b.rows, x.row(s, m, n))
				return true
			})
		default:
			if s.Dead {
				b.of(k, m).left(int64(m.Sequence), int64(bus.EndingOf(op, id, m.Header)))
			} else if s.Operation == op {
				b.event(k, s.State, m)
			}
			x.called(b, s, m)
			names.Each(s.Operation, m.Data, func(n names.Name) bool {
				b.name(x.hash.name(n), n.As, b.of(k, m))
				return true
			})
		}
	}
	return b
}

// of returns what a batch says of a request that a message is about.
func (b *batch) of(k key, m *bus.Message) *news {
	r := b.requests[k]
	if r == nil {
		r = &news{key: k, began: m.Time.UnixMicro()}
		b.requests[k] = r
		b.order = append(b.order, r)
	}
	return r
}

// left notes a dead letter. Another one of the same ending, which a repeat of the request leaves, is nothing new.
func (r *news) left(dead, ended int64) {
	if dead > 0 && (r.dead == 0 || ended == 0 || ended != r.ended) {
		r.dead, r.ended = dead, ended
	}
}

func (b *batch) event(k key, state messages.State, m *bus.Message) {
	f, _ := history.ReadFacts(m.Data)
	r := b.of(k, m)
	r.Kind = Kind{Operation: k.operation, State: state, Reason: f.Reason}
	if r.Class, _ = inspect.ClassOf(k.operation, state, f); state == messages.Resolved {
		r.Outcome = f.Outcome
	}
	r.seq, r.at, r.attempt, r.http = int64(m.Sequence), m.Time.UnixMicro(), f.Attempt, f.HTTPStatus
	if state == messages.Deferred || state.Final(k.operation) {
		b.tally[tally{slotOf(m.Time), r.Kind}]++
	}
}

func (b *batch) name(hash int64, as names.As, of *news) {
	b.names = append(b.names, name{hash, slices.Index(whats, as), of})
}

// called reads to whom a call was.
func (x *Index) called(b *batch, s messages.Subject, m *bus.Message) {
	keys := history.KeysIn(s, m.Data)
	if keys == nil {
		return
	}
	b.secrets[keys.ID] = struct{}{}
	r := b.of(key{s.ID, messages.Send}, m)
	_, to := mailkey.Parties(keys.Keys)
	for _, k := range to {
		b.name(x.hash.recipient(keys.ID, k), names.Recipient, r)
	}
}

func (x *Index) row(s messages.Subject, m *bus.Message, n names.Name) row {
	return row{stream: slices.Index(followed, bus.EventsOf(s.Operation)), seq: int64(m.Sequence), hash: x.hash.name(n)}
}

func (x *Index) delivery(b *batch, s messages.Subject, m *bus.Message) {
	switch s.State {
	case messages.Summary:
		return
	case messages.Erased:
		var body messages.ErasedBody
		if messages.DecodeEvent(m.Data, &body) == nil {
			gone := row{event: x.hash.of("event:", []byte(body.EventID))}
			if s.ID != messages.Unmatched {
				gone.of = b.of(key{s.ID, messages.Send}, m)
			}
			b.erased = append(b.erased, gone)
		}
		return
	}
	b.tally[tally{slotOf(m.Time), Kind{Operation: messages.Delivery, State: s.State}}]++
	event := x.hash.of("event:", []byte(m.Header.Get("ce-id")))
	names.Each(messages.Delivery, m.Data, func(n names.Name) bool {
		row := x.row(s, m, n)
		row.event = event
		if s.ID != messages.Unmatched {
			row.of = b.of(key{s.ID, messages.Send}, m)
		}
		if row.of != nil && n.As != names.Recipient {
			b.name(row.hash, n.As, row.of)
			return true
		}
		b.rows = append(b.rows, row)
		return true
	})
}
