package index

import (
	"encoding/json"
	"strings"

	"errand/internal/bus"
	"errand/pkg/messages"
)

// batch is what a page of messages of one stream says, ready to be written.
type batch struct {
	requests map[key]*news
	order    []*news // as they were met
	names    []name
	mails    []mail
	rows     []int64 // of the sending log that were erased, and are of no request
	tally    map[tally]int
	secrets  map[string]struct{}
}

// key is what a request is known by.
type key struct {
	id        string
	operation messages.Operation
}

// news is what a batch says of a request.
type news struct {
	key
	Kind    // of its last event; no state: there is none in the batch
	began   int64
	seq, at int64 // of the last event
	attempt int
	http    int
	dead    int64 // sequence of its last dead letter, 0: there is none in the batch
	n       int64 // its row, once it is written
	erased  bool
}

// name is what a request is found by.
type name struct {
	hash int64
	what what
	of   *news
}

// mail is a row of the sending log.
type mail struct {
	seq, hash int64
	event     int64 // hash of the event's id, by which it is erased
	of        *news // nil: no request is sure to be meant
	state     messages.State
	smtp      int
	at        int64
}

// tally is what events are counted together by.
type tally struct {
	slot int64
	Kind
}

// facts are the fields of a body that are asked for, whatever its type.
type facts struct {
	Attempt      int             `json:"attempt"`
	OrderNumber  string          `json:"order_number"`
	Reason       messages.Reason `json:"reason"`
	HTTPStatus   int             `json:"http_status"`
	Outcome      messages.State  `json:"outcome"`
	AfterUnknown bool            `json:"after_unknown"`
	PayerEmail   string          `json:"payer_email"` // of a dead letter
	Enrollment   struct {
		PayerEmail string `json:"payer_email"`
	} `json:"enrollment"`
	Evidence json.RawMessage `json:"evidence"`
}

// gather reads a page of messages of a stream. What cannot be read says nothing: it is
// there by its subject alone.
func (x *Index) gather(stream string, page []bus.Message) *batch {
	b := &batch{requests: map[key]*news{}, tally: map[tally]int{}, secrets: map[string]struct{}{}}
	for i := range page {
		m := &page[i]
		if stream == bus.DeadLetters {
			x.dead(b, m)
			continue
		}
		domain, rest, _ := strings.Cut(m.Subject, ".")
		operation, rest, _ := strings.Cut(rest, ".")
		state, id, _ := strings.Cut(rest, ".")
		op, st := messages.Operation(domain+"."+operation), messages.State(state)
		switch {
		case id == "":
		case op == messages.Log && st == messages.Sent:
			x.sent(b, id, m)
		case op == messages.Log:
		case op == messages.Delivery:
			x.delivery(b, st, id, m)
		case numberOf(op) > 0:
			x.event(b, key{id, op}, st, m)
		}
	}
	return b
}

func factsOf(body []byte) (f facts) {
	_ = json.Unmarshal(body, &f) // what could be read before the fault is there
	return f
}

// of gives what a batch says of a request that a message is about.
func (b *batch) of(k key, m *bus.Message) *news {
	r := b.requests[k]
	if r == nil {
		r = &news{key: k, began: m.Time.UnixMicro()}
		b.requests[k] = r
		b.order = append(b.order, r)
	}
	return r
}

// event takes an event of a request's history.
func (x *Index) event(b *batch, k key, state messages.State, m *bus.Message) {
	f := factsOf(m.Data)
	r, records := b.of(k, m), recordsIn(f.Evidence)
	r.Kind = Kind{Operation: k.operation, State: state, Reason: f.Reason, Outcome: f.Outcome, AfterUnknown: f.AfterUnknown, Listed: len(records) > 0}
	if state != messages.Resolved {
		r.Outcome = ""
	}
	r.seq, r.at, r.attempt, r.http = int64(m.Sequence), m.Time.UnixMicro(), f.Attempt, f.HTTPStatus
	if f.OrderNumber != "" {
		b.name(x.hash.order(f.OrderNumber), isOrder, r)
	}
	if f.Enrollment.PayerEmail != "" {
		b.name(x.hash.address(f.Enrollment.PayerEmail), isPayer, r)
	}
	for _, record := range records {
		if record.PayerEmail != "" {
			b.name(x.hash.address(record.PayerEmail), isPayer, r)
		}
	}
	if state == messages.Deferred || state.Final(k.operation) {
		b.tally[tally{slotOf(m.Time), r.Kind}]++
	}
}

// recordsIn are the transaction records in evidence; what else it may be holds none.
func recordsIn(evidence json.RawMessage) (records []struct {
	PayerEmail string `json:"payer_email"`
}) {
	if len(evidence) > 2 && evidence[0] == '[' {
		_ = json.Unmarshal(evidence, &records) // a record is one whatever its fields are
	}
	return records
}

func (b *batch) name(hash int64, what what, of *news) {
	b.names = append(b.names, name{hash, what, of})
}

// sent takes the record of a call for a batch, <id>.<n>.
func (x *Index) sent(b *batch, id string, m *bus.Message) {
	request, _, _ := strings.Cut(id, ".")
	var body messages.SentBody
	if messages.DecodeEvent(m.Data, &body) != nil {
		return
	}
	secret := ""
	if body.Secret != nil {
		secret = body.Secret.ID
		b.secrets[secret] = struct{}{}
	}
	r := b.of(key{request, messages.Send}, m)
	_, to := body.Parties()
	for _, k := range to {
		b.name(x.hash.recipient(secret, k), isRecipient, r)
	}
}

// delivery takes an event of the sending log.
func (x *Index) delivery(b *batch, state messages.State, id string, m *bus.Message) {
	switch state {
	case messages.Summary, messages.Overdue:
		return
	case messages.Erased: // those of a request go with it
		var body struct {
			EventID string `json:"event_id"`
		}
		if json.Unmarshal(m.Data, &body) == nil && id == messages.Unmatched {
			b.rows = append(b.rows, x.hash.of("event:", []byte(body.EventID)))
		}
		return
	}
	var body struct {
		Entry struct {
			To string `json:"to"`
		} `json:"entry"`
		SMTP messages.SMTP `json:"smtp"`
	}
	_ = json.Unmarshal(m.Data, &body) // its state is known without
	b.tally[tally{slotOf(m.Time), Kind{Operation: messages.Delivery, State: state}}]++
	if body.Entry.To == "" {
		return
	}
	row := mail{seq: int64(m.Sequence), hash: x.hash.address(body.Entry.To), event: x.hash.of("event:", []byte(m.Header.Get("ce-id"))), state: state, smtp: body.SMTP.Code, at: m.Time.UnixMicro()}
	if id != messages.Unmatched {
		row.of = b.of(key{id, messages.Send}, m)
	}
	b.mails = append(b.mails, row)
}

// dead takes a dead letter. Its request is found by whom it names too: it may have ended
// before a call was made.
func (x *Index) dead(b *batch, m *bus.Message) {
	id := m.Header.Get(bus.HeaderRequestID)
	op := messages.Operation(strings.TrimSuffix(strings.TrimPrefix(m.Subject, "dead."), ".requested"))
	if id == "" || numberOf(op) == 0 {
		return
	}
	r := b.of(key{id, op}, m)
	r.dead = int64(m.Sequence)
	f := factsOf(m.Data)
	if op == messages.Enroll && f.OrderNumber != "" {
		b.name(x.hash.order(f.OrderNumber), isOrder, r)
	}
	if op == messages.Enroll && f.PayerEmail != "" {
		b.name(x.hash.address(f.PayerEmail), isPayer, r)
	}
}
