package bus

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/history"
	"errand/internal/retry"
	"errand/pkg/messages"
)

// EventStore keeps histories in the events streams. It implements history.Log.
type EventStore struct {
	Publisher *Publisher
	Source    string // ce-source of the events, a URI reference
}

// writer names the header by which a worker recognizes its own write.
const writer = "Errand-Writer"

var _ history.Log = EventStore{}

// Append stores one event if the last one of its history is still the one that the
// writer saw. When the acknowledgement is lost it finds out what became of the
// write: an error other than history.ErrFenced and history.ErrTooLarge is given
// only when the context ended first, when the server refuses the event for good, or
// when what it says of the history makes no sense for a minute.
//
// Over a history that is gone from the stream, removed by somebody or by its age,
// everything but started and reopened is stored: what became of a call must be published
// nevertheless.
func (s EventStore) Append(ctx context.Context, r history.Record) (uint64, error) {
	m, err := s.encode(r)
	if err != nil {
		return 0, err
	}
	defer recycle(m.Header)
	unsure := r.Last > 0     // whether a conflict may mean something other than another's event
	var conflicted time.Time // since when the server refuses it for one; zero: it does not
	for n := 1; ; n++ {
		a, err := s.Publisher.Publish(ctx, m)
		switch {
		case err == nil:
			return a.Sequence, nil
		case tooLarge(err):
			return 0, fmt.Errorf("bus: store %s: %w: %w", m.Subject, history.ErrTooLarge, err)
		case IsFinal(err):
			return 0, fmt.Errorf("bus: store %s: %w", m.Subject, err)
		case !IsConflict(err):
			unsure, conflicted = true, time.Time{} // it may have been stored
			if errors.Is(err, errBroken) {
				// Written again at once it goes out first when the connection is back,
				// before the server sends the same request to another worker.
				n = 1
			}
		case !unsure:
			return 0, history.ErrFenced
		default:
			seq, err := s.explain(ctx, r, m)
			if err == nil || errors.Is(err, history.ErrFenced) {
				return seq, err
			}
			if conflicted.IsZero() {
				conflicted = time.Now()
			}
			if errors.Is(err, errUnexplained) && time.Since(conflicted) > retry.Unexplained {
				return 0, fmt.Errorf("bus: store %s: %w", m.Subject, err)
			}
		}
		if !retry.Pause(ctx, retry.Store.Wait(n)) {
			return 0, fmt.Errorf("bus: store %s: %w", m.Subject, context.Cause(ctx))
		}
	}
}

var errUnexplained = errors.New("the server refuses the event for another one, and shows none")

// explain reads why m, the message of r, was refused for a conflict. It gives the
// sequence of our own event if that is what was stored. Errors: history.ErrFenced,
// errUnexplained (m is ready to be tried again), or that nothing can be read.
func (s EventStore) explain(ctx context.Context, r history.Record, m *nats.Msg) (uint64, error) {
	got, err := s.get(ctx, r.Event.Operation, lastOf(r.Event.Operation.Filter(r.Event.ID)))
	switch {
	case err != nil:
		return 0, err
	case got == nil && r.Event.State != messages.Started && r.Event.State != messages.Reopened: // those two follow what is known only
		expect(m.Header, 0)
	case got == nil:
	case wrote(got, m):
		s.Publisher.note(streamOf(m.Subject), nil)
		return got.seq, nil
	case got.seq > r.Last:
		return 0, history.ErrFenced
	default: // a stale read, or the write is not through yet
		expect(m.Header, r.Last)
	}
	return 0, errUnexplained
}

// Fence makes the server store a message only if the last one under filter still has the
// sequence last; 0: if there is none. All writers must name the same filter: in a cluster
// the server keeps writes in flight apart by it.
func Fence(h nats.Header, filter string, last uint64) {
	expect(h, last)
	h[expectedSubject] = []string{filter}
}

func expect(h nats.Header, last uint64) {
	h[jetstream.ExpectedLastSubjSeqHeader] = []string{strconv.FormatUint(last, 10)}
}

// expectedSubject is the header that names the filter which a fence is held against.
const expectedSubject = "Nats-Expected-Last-Subject-Sequence-Subject"

// wrote reports whether the last event of the history is the message that we sent.
func wrote(got *stored, m *nats.Msg) bool {
	return got.header.Get(writer) == m.Header.Get(writer) && got.header.Get(eventID) == m.Header.Get(eventID)
}

// eventID is the header of an event's CloudEvents id.
const eventID = "ce-id"

// encode makes the message of an event. Its ce-id is the same for the same step of the
// same history, whoever writes it. It has no Nats-Msg-Id: the fence keeps it single, and
// by an id the server would refuse it while an earlier try of it is still in flight.
func (s EventStore) encode(r history.Record) (*nats.Msg, error) {
	body, err := r.Event.Encode()
	if err != nil {
		return nil, err
	}
	m := &nats.Msg{Subject: r.Event.Subject(), Data: body, Header: headerMaps.Get().(nats.Header)}
	last := strconv.FormatUint(r.Last, 10)
	r.Event.Headers(m.Header, s.Source, m.Subject+"."+last)
	values := [...]string{r.Writer, last, r.Event.Operation.Filter(r.Event.ID), r.Trace.Parent, r.Trace.State}
	for i, name := range [...]string{writer, jetstream.ExpectedLastSubjSeqHeader, expectedSubject, "traceparent", "tracestate"} {
		if values[i] != "" && (name != "tracestate" || r.Trace.Parent != "") {
			m.Header[name] = values[i : i+1 : i+1]
		}
	}
	return m, nil
}

// headerMaps are used again: a map of twelve headers is half a kilobyte.
var headerMaps = sync.Pool{New: func() any { return make(nats.Header, 12) }}

// recycle is for the headers of a message that was published: the connection has its own copy.
func recycle(h nats.Header) {
	clear(h)
	headerMaps.Put(h)
}

// Last gives the last event under a subject or filter of op.
func (s EventStore) Last(ctx context.Context, op messages.Operation, filter string) (history.Entry, error) {
	got, err := s.insist(ctx, op, lastOf(filter))
	if err != nil {
		return history.Entry{}, fmt.Errorf("bus: read %s: %w", filter, err)
	}
	if got == nil {
		return history.Entry{}, nil
	}
	return history.Entry{Subject: got.subject, Sequence: got.seq, At: got.at, Body: got.data}, nil
}
