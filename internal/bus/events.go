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
	"errand/internal/wire"
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

// Append stores one event if the last one of its history is still the one that the writer saw, and returns its sequence.
// When the acknowledgement is lost it finds out what became of the write. Errors: history.ErrFenced, history.ErrTooLarge,
// or that the context ended, the server never takes the event, or its refusal stayed unexplained for retry.Unexplained.
//
// Over a history that was removed, all but started and reopened is stored: what became of a call must be published.
func (s EventStore) Append(ctx context.Context, r history.Record) (uint64, error) {
	m, err := s.encode(r)
	if err != nil {
		return 0, err
	}
	defer func() { // the connection has copied them
		clear(m.Header)
		headerMaps.Put(m.Header)
	}()
	unsure := r.Last > 0     // whether a conflict may mean something other than another's event
	var conflicted time.Time // since when the server refuses it for one; zero means that it does not
	for n := 1; ; n++ {
		a, err := s.Publisher.Publish(ctx, m)
		switch {
		case err == nil:
			return a.Sequence, nil
		case tooLarge(err):
			return 0, fmt.Errorf("bus: store %s: %w: %w", m.Subject, history.ErrTooLarge, err)
		case IsFinal(err):
			return 0, fmt.Errorf("bus: store %s: %w", m.Subject, err)
		case !isConflict(err):
			unsure, conflicted = true, time.Time{} // it may have been stored
			if errors.Is(err, errBroken) {
				// Written again at once, it is the first when the connection is back, before another worker has the request.
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

// explain reads why m, the message of r, was refused for a conflict. It returns the sequence of m if that is what was
// stored. Errors: history.ErrFenced, errUnexplained (m can be tried again), or that nothing can be read.
func (s EventStore) explain(ctx context.Context, r history.Record, m *nats.Msg) (uint64, error) {
	got, err := direct(ctx, s.Publisher.nc, EventsOf(r.Event.Operation), lastOf(r.Event.Operation.Filter(r.Event.ID)))
	switch {
	case err != nil:
		return 0, err
	case got == nil && r.Event.State != messages.Started && r.Event.State != messages.Reopened: // these follow an event that exists
		expect(m.Header, 0)
	case got == nil:
	case got.Header.Get(writer) == m.Header.Get(writer) && got.Header.Get("ce-id") == m.Header.Get("ce-id"): // it is ours
		s.Publisher.note(streamOf(m.Subject), nil)
		return got.Sequence, nil
	case got.Sequence > r.Last:
		return 0, history.ErrFenced
	default: // a stale read, or the write is not through yet
		expect(m.Header, r.Last)
	}
	return 0, errUnexplained
}

// Fence makes the server store a message only if the last one under filter still has the sequence last, 0 if there is
// none. All writers must name the same filter: in a cluster the server tells writes in flight apart by it.
func Fence(h nats.Header, filter string, last uint64) {
	expect(h, last)
	h[expectedSubject] = []string{filter}
}

func expect(h nats.Header, last uint64) {
	h[jetstream.ExpectedLastSubjSeqHeader] = []string{strconv.FormatUint(last, 10)}
}

// expectedSubject is the header with the filter of a fence.
const expectedSubject = "Nats-Expected-Last-Subject-Sequence-Subject"

// TraceOf is the W3C trace context of a request or of an event about it.
func TraceOf(h nats.Header) history.Trace {
	return history.Trace{Parent: wire.Cut(h.Get("traceparent")), State: wire.Cut(h.Get("tracestate"))}
}

// encode makes the message of an event. Its ce-id is the same whichever worker writes the step. It has no Nats-Msg-Id: the
// fence keeps it single, and the server would refuse the id while an earlier try is still in flight.
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

// headerMaps are reused: a map of twelve headers is half a kilobyte.
var headerMaps = sync.Pool{New: func() any { return make(nats.Header, 12) }}

// insist asks for something until there is an answer, ctx ends or the connection is closed.
func insist[T any](ctx context.Context, nc *nats.Conn, op messages.Operation, ask func() (T, error)) (got T, err error) {
	for n := 1; ; n++ {
		if got, err = ask(); err == nil {
			return got, nil
		}
		if nc.IsClosed() || !retry.Pause(ctx, retry.Store.Wait(n)) {
			return got, fmt.Errorf("bus: read the events of %s: %w", op, err)
		}
	}
}

// read insists on the answer of a read; nil means that there is no such event.
func (s EventStore) read(ctx context.Context, op messages.Operation, what map[string]any,
	read func(context.Context, *nats.Conn, string, map[string]any) (*Message, error),
) (history.Entry, error) {
	nc := s.Publisher.nc
	got, err := insist(ctx, nc, op, func() (*Message, error) { return read(ctx, nc, EventsOf(op), what) })
	return entryIn(got), err
}

func entryIn(m *Message) history.Entry {
	if m == nil {
		return history.Entry{}
	}
	return history.Entry{Subject: m.Subject, Sequence: m.Sequence, At: m.Time, Body: m.Data, Trace: TraceOf(m.Header)}
}

// Last returns the last event under a subject or filter of op, a zero one when there is none. Any replica may answer.
func (s EventStore) Last(ctx context.Context, op messages.Operation, filter string) (history.Entry, error) {
	return s.read(ctx, op, lastOf(filter), direct)
}

// Leader returns what Last does, as the stream's leader has it.
func (s EventStore) Leader(ctx context.Context, op messages.Operation, filter string) (history.Entry, error) {
	return s.read(ctx, op, lastOf(filter), fromLeader)
}

// Newest returns the last event under any of some filters, none for all, as the leader has it; a zero one when there is none.
func (s EventStore) Newest(ctx context.Context, op messages.Operation, filters ...string) (last history.Entry, err error) {
	if len(filters) == 0 {
		filters = []string{"*.>"} // for ">" the server has nothing where its last message was removed
	}
	for _, filter := range filters {
		one, err := s.Leader(ctx, op, filter)
		if err != nil {
			return last, err
		}
		if one.Sequence > last.Sequence {
			last = one
		}
	}
	return last, nil
}

// Next returns the first event under a filter at or behind a sequence, as the leader has it; a zero one when there is none.
func (s EventStore) Next(ctx context.Context, op messages.Operation, filter string, from uint64) (history.Entry, error) {
	return s.read(ctx, op, map[string]any{"next_by_subj": filter, "seq": from}, fromLeader)
}

// At returns the event of op with a sequence, as the leader has it; a zero one when it is gone.
func (s EventStore) At(ctx context.Context, op messages.Operation, sequence uint64) (history.Entry, error) {
	return s.read(ctx, op, map[string]any{"seq": sequence}, fromLeader)
}
