package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/history"
	"errand/internal/retry"
	"errand/pkg/messages"
)

// Log keeps histories in the events streams. It implements history.Log.
type Log struct {
	Publisher *Publisher
	Source    string // ce-source of the events, a URI reference
}

// writer names the header by which a worker knows its own write again.
const writer = "Errand-Writer"

var _ history.Log = Log{}

// undecided is how long a conflict may stay unexplained: the server refuses the
// write, and what is read does not show why.
const undecided = time.Minute

// Append stores one event if the last one of its history is still the one that the
// writer saw. When the acknowledgement is lost it finds out what became of the
// write: an error other than history.ErrConflict and history.ErrTooLarge is given
// only when the context ended first, when the server refuses the event for good, or
// when what it says of the history makes no sense for a minute.
//
// Over a history that is gone from the stream, by an operator's hand or by its age,
// everything but started is stored: what became of a call must be told nevertheless.
func (l Log) Append(ctx context.Context, r history.Record) (uint64, error) {
	m, err := l.encode(r)
	if err != nil {
		return 0, err
	}
	unsure := r.Last > 0 // whether a conflict may mean something other than another's event
	began := time.Now()
	for wait := firstWait; ; wait = min(2*wait, 2*time.Second) {
		a, err := l.Publisher.Publish(ctx, m)
		if errors.Is(err, errBroken) {
			// Written again at once it goes out first when the connection is back,
			// before the server sends the same request to another hand.
			wait = firstWait
		}
		switch {
		case err == nil && !a.Duplicate:
			return a.Sequence, nil
		case err == nil || conflict(err):
			if !unsure {
				return 0, history.ErrConflict
			}
			got, err := l.last(ctx, r.Event.Operation, r.Event.Operation.Filter(r.Event.ID))
			switch {
			case err != nil:
			case got == nil && r.Event.State != messages.Started: // a call is announced over what is known only
				expect(m, 0)
			case got == nil:
			case wrote(got, m):
				return got.seq, nil
			case got.seq > r.Last:
				return 0, history.ErrConflict
			default: // a stale read, or the write is not through yet
				expect(m, r.Last)
			}
			if err == nil && time.Since(began) > undecided {
				return 0, fmt.Errorf("bus: store %s: %w", m.Subject, errUndecided)
			}
		case tooLarge(err):
			return 0, fmt.Errorf("bus: store %s: %w: %w", m.Subject, history.ErrTooLarge, err)
		case final(err):
			return 0, fmt.Errorf("bus: store %s: %w", m.Subject, err)
		default:
			unsure = true // it may have been stored
		}
		if !retry.Pause(ctx, wait) {
			return 0, fmt.Errorf("bus: store %s: %w", m.Subject, context.Cause(ctx))
		}
	}
}

// firstWait is the pause before something is asked of NATS again; it doubles.
const firstWait = 50 * time.Millisecond

var errUndecided = errors.New("the server says that another event stands there, and shows none")

// expect sets the sequence that the last event of the history must have.
func expect(m *nats.Msg, last uint64) {
	m.Header[jetstream.ExpectedLastSubjSeqHeader] = []string{strconv.FormatUint(last, 10)}
}

// wrote tells whether the event that stands in the history is the message that we
// sent before.
func wrote(got *stored, m *nats.Msg) bool {
	return got.header.Get(writer) == m.Header.Get(writer) && got.header.Get(nats.MsgIdHdr) == m.Header.Get(nats.MsgIdHdr)
}

// conflict: 10164 is 10071 with another write to the same history still in flight.
func conflict(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && (api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant)
}

// encode makes the message of an event. Its Nats-Msg-Id is the same for the same
// step of the same history, whoever writes it.
func (l Log) encode(r history.Record) (*nats.Msg, error) {
	body, err := r.Event.Encode()
	if err != nil {
		return nil, err
	}
	m := &nats.Msg{Subject: r.Event.Subject(), Data: body, Header: make(nats.Header, headers)}
	last := strconv.FormatUint(r.Last, 10)
	r.Event.Headers(m.Header, l.Source, m.Subject+"."+last)
	m.Header[writer] = []string{r.Writer}
	expect(m, r.Last)
	m.Header[expectedSubject] = []string{r.Event.Operation.Filter(r.Event.ID)}
	if r.Trace.Parent != "" {
		m.Header["traceparent"] = []string{r.Trace.Parent}
		if r.Trace.State != "" {
			m.Header["tracestate"] = []string{r.Trace.State}
		}
	}
	return m, nil
}

// headers is how many an event has with a trace; beyond 14 a map takes twice the room.
const headers = 13

// expectedSubject is the header that names the filter which a fence is held against.
const expectedSubject = "Nats-Expected-Last-Subject-Sequence-Subject"

// Last gives the last event under a subject or filter of op.
func (l Log) Last(ctx context.Context, op messages.Operation, filter string) (history.Entry, error) {
	got, err := l.insist(ctx, op, lastOf(filter))
	if err != nil {
		return history.Entry{}, fmt.Errorf("bus: read %s: %w", filter, err)
	}
	if got == nil {
		return history.Entry{}, nil
	}
	return history.Entry{Subject: got.subject, Sequence: got.seq, Body: got.data}, nil
}

// insist is get until there is an answer or ctx ends.
func (l Log) insist(ctx context.Context, op messages.Operation, what map[string]any) (*stored, error) {
	for wait := firstWait; ; wait = min(2*wait, 2*time.Second) {
		got, err := l.get(ctx, op, what)
		if err == nil || !retry.Pause(ctx, wait) {
			return got, err
		}
	}
}

type stored struct {
	subject string
	seq     uint64
	header  nats.Header
	data    []byte
}

// last reads by direct get: it may be answered by a follower and be stale, which
// the fences of whatever is written upon it make harmless. nil: there is none.
func (l Log) last(ctx context.Context, op messages.Operation, filter string) (*stored, error) {
	return l.get(ctx, op, lastOf(filter))
}

func lastOf(filter string) map[string]any { return map[string]any{"last_by_subj": filter} }

// get asks the events stream of op for one message; nil: there is none.
func (l Log) get(ctx context.Context, op messages.Operation, what map[string]any) (*stored, error) {
	ask, _ := json.Marshal(what)
	ctx, cancel := context.WithTimeout(ctx, ackWait)
	defer cancel()
	m, err := l.Publisher.nc.RequestWithContext(ctx, "$JS.API.DIRECT.GET."+EventsOf(op), ask)
	if err != nil {
		return nil, err
	}
	switch status := m.Header.Get("Status"); status {
	case "":
	case "404":
		return nil, nil
	default:
		return nil, fmt.Errorf("nats: direct get: status %s %s", status, m.Header.Get("Description"))
	}
	seq, err := strconv.ParseUint(m.Header.Get(jetstream.SequenceHeader), 10, 64)
	if err != nil {
		return nil, fmt.Errorf("nats: direct get: %w", err)
	}
	return &stored{subject: m.Header.Get(jetstream.SubjectHeader), seq: seq, header: m.Header, data: m.Data}, nil
}
