// Package inspect answers the questions of people on call from what NATS has. It only asks, and leaves nothing behind.
//
//	status.go  queues, programs, streams; problems.go: what is wrong with them, and which alert says so
//	open.go    requests without an outcome, which are in the queues; explain.go: why one waits
//	story.go   all that is known of one request; evidence.go: what the sending log shows
//	list.go    requests by state, reason and time; find.go: by what they name
//	dead.go    dead letters; class.go: what running one again may do
//
// What has an outcome is read from the events, by filters on the server. What has none is in its queue and nowhere else.
package inspect

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"errand/internal/bus"
	"errand/internal/history"
	"errand/internal/wire"
	"errand/pkg/messages"
)

// Reader asks one account of NATS. What a user may not ask ends in an error that says so.
type Reader struct {
	Conn *nats.Conn
	JS   jetstream.JetStream
	// Hide removes from what an upstream said of a request whatever a message of the request names; nil removes nothing.
	Hide func(op messages.Operation, said string, message []byte) string
	// Progress is called by Find, several times at once, with how many messages it has read of how many; nil is not called.
	Progress func(read, of uint64)
}

// Operations are the operations that can be requested, in the order in which they are shown.
var Operations = []messages.Operation{messages.Enroll, messages.Transactions, messages.Send, messages.Account}

// operations returns the named ones in that order, or all when none is named.
func operations(named []messages.Operation) []messages.Operation {
	if len(named) == 0 {
		return Operations
	}
	return slices.DeleteFunc(slices.Clone(Operations), func(op messages.Operation) bool { return !slices.Contains(named, op) })
}

// Queued is the state of a request that has no event yet.
const Queued messages.State = "queued"

// finals are the final states of an operation, in the order in which they are shown.
func finals(op messages.Operation) []messages.State {
	return slices.DeleteFunc([]messages.State{messages.Succeeded, messages.Listed, messages.Accepted, messages.Reported, messages.Partial,
		messages.Failed, messages.Uncertain, messages.Resolved, messages.Erased}, func(s messages.State) bool { return !s.Final(op) })
}

// opens are the states of requests that have no outcome.
var opens = []messages.State{Queued, messages.Started, messages.Deferred, messages.Reopened, messages.Page}

// Pages of what is read: messages at once.
const (
	page     = 4096
	parallel = 32 // questions under way at once
)

// each calls work for 0 to n-1, several at once, and returns one of their errors.
func each(n int, work func(i int) error) error {
	var g errgroup.Group
	g.SetLimit(parallel)
	for i := range n {
		g.Go(func() error { return work(i) })
	}
	return g.Wait()
}

// eachSeen is each, without what this account does not see, as long as it sees something.
func eachSeen(n int, work func(i int) error) error {
	unseen := make([]error, n)
	err := each(n, func(i int) error {
		err := work(i)
		if hidden(err) {
			unseen[i] = err
			return nil
		}
		return err
	})
	if err == nil && !slices.Contains(unseen, nil) {
		return unseen[0]
	}
	return err
}

// IsID reports whether a text can be the id of a request. What lists show of no request goes by messages.Unmatched.
func IsID(text string) bool { return wire.IsID(text) && text != messages.Unmatched }

// last returns the last event of a request; false when it has none, as what cannot be an id.
func (r Reader) last(ctx context.Context, op messages.Operation, id string) (bus.Message, bool, error) {
	if !IsID(id) {
		return bus.Message{}, false, nil
	}
	return bus.Last(ctx, r.Conn, bus.EventsOf(op), op.Filter(id))
}

// Argument is an id as a command that is printed has it: one that begins with - would be an option.
func Argument(id string) string { return strings.TrimSpace(strings.Replace(" "+id, " -", "-- -", 1)) }

// hidden reports whether this account does not have a stream or queue: a service has copies of the events alone.
func hidden(err error) bool {
	return errors.Is(err, bus.ErrNoStream) || errors.Is(err, jetstream.ErrStreamNotFound) || errors.Is(err, jetstream.ErrConsumerNotFound)
}

// factsOf reads a body; what cannot be read says nothing.
func factsOf(body []byte) history.Facts {
	f, _ := history.ReadFacts(body)
	return f
}

// Event is a message as it is stored.
type Event struct {
	Time     messages.Time     `json:"time"`
	Subject  string            `json:"subject"`
	Sequence uint64            `json:"sequence"`
	Headers  map[string]string `json:"headers,omitempty"`
	Body     any               `json:"body"` // JSON, or a string of anything else

	Message bus.Message `json:"-"`
}

// EventOf is a message with its headers; the values of one are joined.
func EventOf(m bus.Message) Event {
	e := eventOf(m)
	e.Headers = map[string]string{}
	for name, values := range m.Header {
		e.Headers[name] = strings.Join(values, ", ")
	}
	return e
}

func eventOf(m bus.Message) Event {
	e := Event{Time: messages.Time{Time: m.Time}, Subject: m.Subject, Sequence: m.Sequence, Body: string(m.Data), Message: m}
	if json.Valid(m.Data) {
		e.Body = json.RawMessage(m.Data)
	}
	return e
}

// optional is nil for no time.
func optional(t time.Time) *messages.Time {
	if t.IsZero() {
		return nil
	}
	return &messages.Time{Time: t}
}

// States are the states that a request of the named operations may be in; of all operations when none is named.
func States(of []messages.Operation) []messages.State {
	all := slices.Clone(opens)
	for _, op := range operations(of) {
		all = append(all, finals(op)...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}
