package act

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"errand/internal/bus"
	"errand/internal/wire"
	"errand/pkg/messages"
)

// Entry is an act as AUDIT has it.
type Entry struct {
	Record
	Ended    *messages.Time `json:"ended,omitempty"` // when its second record was stored; nil if there is none
	Sequence uint64         `json:"sequence"`        // of its first record that is known
	// Suspect is why the records may not be what errand stored, or from another person than their subject says.
	Suspect string `json:"suspect,omitempty"`
}

// strange is how far the time of an act may be from the stream's.
const strange = 10 * time.Minute

// Query is which acts are asked for; what is left out is any.
type Query struct {
	Verb   Verb
	Actor  string
	Target string
	Since  time.Time
	Limit  int // the newest so many; 0: all
}

// Acts returns what people did, the newest first. An act without a second record has the result
// Unknown. Errors: bus.ErrNoStream, or the connection's.
func Acts(ctx context.Context, nc *nats.Conn, q Query) ([]Entry, error) {
	scan := bus.Scan{Stream: bus.Audit, Filter: subjectOf(string(q.Verb), q.Actor, q.Target), Since: q.Since}
	if some, err := scan.ToNewest(ctx, nc, 2*q.Limit); err != nil || !some { // of each act there are two at most
		return nil, err
	}
	var entries []Entry
	place := map[string]int{} // by subject and id
	err := scan.Each(ctx, nc, func(m bus.Message) bool {
		e := entryOf(m)
		key := m.Subject + " " + e.ID
		if i, known := place[key]; known && e.ID != "" {
			entries[i].end(e)
			return true
		}
		place[key] = len(entries)
		entries = append(entries, e)
		return true
	})
	if err != nil {
		return nil, err
	}
	slices.Reverse(entries)
	if q.Limit > 0 && len(entries) > q.Limit {
		entries = entries[:q.Limit]
	}
	return entries, nil
}

// end adds the second record of an act, which says how it went. What the first says of it stands: the person who acted may store more.
func (e *Entry) end(second Entry) {
	first := e.Record
	first.Result, first.Message, second.At = second.Result, second.Message, first.At
	if e.Ended == nil && first == second.Record {
		e.Record, e.Ended, e.Suspect = first, second.Ended, cmp.Or(e.Suspect, second.Suspect)
		return
	}
	e.Suspect = cmp.Or(e.Suspect, "another record of it says otherwise, or came later")
}

// entryOf reads a record. What its subject says counts: that is what the servers may hold a
// user to.
func entryOf(m bus.Message) Entry {
	e := Entry{Sequence: m.Sequence}
	said := json.Unmarshal(m.Data, &e.Record) == nil
	tokens := append(strings.Split(m.Subject, "."), "", "", "")
	actor, verb, target := wire.NameOf(tokens[2]), Verb(tokens[1]), wire.NameOf(tokens[3])
	if !said || e.Actor != wire.Cut(actor) || e.Verb != verb || e.Target != target || e.ID == "" {
		e.Suspect = "the record does not say what its subject says"
	}
	if m.Header.Get(nats.MsgIdHdr) == "" {
		e.Suspect = "the record was not stored by errand"
	}
	if e.Result == "" && m.Time.Sub(e.At.Time).Abs() > strange {
		e.Suspect = cmp.Or(e.Suspect, "it says another time than the stream's")
	}
	e.Actor, e.Verb, e.Target = actor, verb, target
	if e.Suspect != "" || e.At.IsZero() {
		e.At = messages.Time{Time: m.Time}
	}
	if e.Result == "" {
		e.Result = Unknown
	} else {
		e.Ended = &messages.Time{Time: m.Time}
	}
	return e
}

// Discarded returns the request and the sequence of the dead letter that a record in AUDIT says was discarded; "" if it says no such thing.
func Discarded(m bus.Message) (op messages.Operation, id string, letter uint64) {
	e := entryOf(m)
	if !e.discards() {
		return "", "", 0
	}
	return e.Operation, e.Target, e.DeadLetter
}

// discards reports whether the act left a dead letter as it is.
func (e Entry) discards() bool { return e.Verb == Discard && e.Result == Done && e.Suspect == "" }
