// Package act is what people do to requests and queues. Each act is recorded in the stream AUDIT before it is done, or it is
// not done, and afterwards with its result. Without the second record the result is unknown.
//
//	audit.<verb>.<actor>.<target>  before ─► the act ─► audit.<verb>.<actor>.<target>  after
//
//	audit.go             the records, stored and read
//	redrive.go           dead letters run again; redrive_plan.go: what is known of each; redrive_batches.go: of a message
//	retry.go             a deferred request, run now
//	suppress.go          addresses that nothing is sent to
//	cancel.go, pause.go  requests that are withdrawn; queues that give out nothing
//	erase_person.go      what is stored of a person; erase_plan.go: of a request; erase_request.go removes it
package act

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/retry"
	"errand/internal/wire"
	"errand/pkg/messages"
)

// Verb is what somebody does: a closed set.
type Verb string

// The verbs.
const (
	Redrive Verb = "redrive" // have a request that ended run again
	Discard Verb = "discard" // leave a dead letter as it is: nobody needs to look at it
	Retry   Verb = "retry"   // have a deferred request run now
	Cancel  Verb = "cancel"  // end a request before any call was made
	Pause   Verb = "pause"   // have a queue give out nothing for a while
	Resume  Verb = "resume"  // end a pause
	Erase   Verb = "erase"   // remove what is stored of a person
	Reveal  Verb = "reveal"  // look at personal data that is hidden otherwise

	Suppress   Verb = "suppress"   // have nothing sent to an address
	Unsuppress Verb = "unsuppress" // have it written to again
)

// Verbs are all that there are.
var Verbs = []Verb{Redrive, Discard, Retry, Cancel, Pause, Resume, Erase, Reveal, Suppress, Unsuppress}

// Act is what a person is about to do. It holds no personal data: it stays for 400 days, and nobody can remove it.
type Act struct {
	Verb      Verb               `json:"verb"`
	Operation messages.Operation `json:"operation,omitempty"` // of the request or the queue
	Target    string             `json:"target"`              // a request id, or the name of a queue
	Why       string             `json:"why"`
	Plan      string             `json:"plan,omitempty"` // what the target is in, and what is to be done with it
	// DeadLetter is the sequence of the one that is discarded.
	DeadLetter uint64 `json:"dead_letter,omitempty"`
	// Ending is the sequence of the event that it is about.
	Ending uint64 `json:"ending,omitempty"`
}

// Result is how an act went.
type Result string

// The results.
const (
	Done    Result = "done"
	NotDone Result = "not_done" // it was refused, or not needed; nothing was changed
	Unknown Result = "unknown"  // it failed, and may have been done in part
)

// Record is what AUDIT stores, twice for each act: before it without a result, and after it.
type Record struct {
	ID    string        `json:"id"` // the same for both
	At    messages.Time `json:"at"` // when the act began
	Actor string        `json:"actor"`
	Via   string        `json:"via,omitempty"` // the program with which it was done
	Act
	Result  Result `json:"result,omitempty"`
	Message string `json:"message,omitempty"`
}

// Person is somebody who acts, and the connection with which.
type Person struct {
	Name string // who, as the subject of the record says
	Via  string // the program, with its version
	Conn *nats.Conn
	JS   jetstream.JetStream

	Publisher *bus.Publisher // of Conn
	Audit     Audit          // Publisher, except in a simulation
}

// Audit keeps the records of acts, however long that takes.
type Audit interface {
	Keep(context.Context, *nats.Msg) error
}

// As is a person of that name. Errors: ErrNobody, or the connection's.
func As(name, via string, nc *nats.Conn, js jetstream.JetStream) (Person, error) {
	if token := wire.SubjectToken(name); token == "" || len(token) > maxToken {
		return Person{}, ErrNobody
	}
	p, err := bus.NewPublisher(nc)
	return Person{Name: name, Via: via, Conn: nc, JS: js, Publisher: p, Audit: p}, err
}

const maxToken = 128

var (
	// ErrNobody means that nobody is named who acts, or by too long a name.
	ErrNobody = errors.New("nobody is named who does it")
	// ErrNoReason means that the act has no reason.
	ErrNoReason = errors.New("nothing was done: it needs a reason")
	// ErrNothingDone is what an act returns that changed nothing; the error around it says why.
	ErrNothingDone = errors.New("nothing was done")
	// ErrNotRecorded means that the record before the act could not be stored: nothing was done.
	ErrNotRecorded = errors.New("nothing was done, since it could not be recorded in " + bus.Audit)
)

// Do records an act, does it, and records its result; said is that in a few words, without personal data. Errors:
// ErrNoReason, ErrNotRecorded, ErrNothingDone, or any other, after which it may have been done in part or not recorded.
func (p Person) Do(ctx context.Context, a Act, do func(context.Context) (said string, err error)) (string, error) {
	a.Why = wire.Cut(strings.TrimSpace(a.Why))
	if a.Why == "" {
		return "", ErrNoReason
	}
	a.Plan = wire.Cut(a.Plan)
	r := Record{ID: rand.Text()[:13], At: messages.Time{Time: time.Now()}, Actor: wire.Cut(p.Name), Via: p.Via, Act: a}
	if err := p.record(ctx, r, "before"); err != nil {
		return "", fmt.Errorf("%w: %w", ErrNotRecorded, err)
	}
	said, err := do(ctx)
	if r.Result = resultOf(err); err != nil {
		said = err.Error()
	}
	r.Message = wire.Cut(said)
	if unrecorded := p.record(context.WithoutCancel(ctx), r, "after"); unrecorded != nil {
		err = errors.Join(err, fmt.Errorf("how it went (%s) could not be recorded in %s: %w", r.Result, bus.Audit, unrecorded))
	}
	return said, err
}

func resultOf(err error) Result {
	switch {
	case err == nil:
		return Done
	case errors.Is(err, ErrNothingDone), errors.Is(err, ErrNotRecorded):
		return NotDone
	}
	return Unknown
}

func (p Person) record(ctx context.Context, r Record, when string) error {
	ctx, cancel := context.WithTimeout(ctx, retry.Answer)
	defer cancel()
	body, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("act: encode the record: %w", err)
	}
	return p.Audit.Keep(ctx, &nats.Msg{Subject: subjectOf(string(r.Verb), p.Name, r.Target), Data: body,
		Header: nats.Header{nats.MsgIdHdr: {r.ID + "." + when}}})
}

// subjectOf is where records are stored; an empty part is any.
func subjectOf(verb, actor, target string) string {
	return "audit." + cmp.Or(verb, "*") + "." + cmp.Or(wire.SubjectToken(actor), "*") + "." + cmp.Or(wire.SubjectToken(target), "*")
}

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
	return entries[:min(len(entries), cmp.Or(q.Limit, len(entries)))], nil
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
