package act

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/deliveries"
	"errand/internal/history"
	"errand/internal/inspect"
	"errand/pkg/messages"
)

// Erasure is what is stored of a request that has ended, and is removed with its data.
type Erasure struct {
	RequestID   string             `json:"request_id"`
	Operation   messages.Operation `json:"operation"`
	State       messages.State     `json:"state"`  // "": its history is gone
	Events      int                `json:"events"` // of it and of its batches
	Calls       int                `json:"calls"`  // records of calls, and what was concluded of them
	Rows        int                `json:"rows"`   // of the sending log
	DeadLetters int                `json:"dead_letters"`
	// Recipients of a message; where they are more than one it is of others, too.
	Recipients int `json:"recipients,omitempty"`
	// Refused is why it cannot be erased now; "": it can.
	Refused string `json:"refused,omitempty"`
	// Awaits is until when the sending log may show rows that it has not shown yet: those would
	// be published again, of no request.
	Awaits *messages.Time `json:"awaits,omitempty"`

	subjects map[string][]string // what is purged, by stream
	batches  []string            // BatchIDs
	dead     []uint64
}

// rowsCome is how long after the end of a message rows of it may come.
const rowsCome = 6 * 24 * time.Hour

// ErasureOf is what is stored of a request. Errors: ErrNothingDone when nothing is.
func ErasureOf(ctx context.Context, r inspect.Reader, op messages.Operation, id string, now time.Time) (e Erasure, err error) {
	e = Erasure{RequestID: id, Operation: op, subjects: map[string][]string{}}
	if !nameable(id) {
		return e, fmt.Errorf("%w: %q can be no request id", ErrNothingDone, id)
	}
	last, there, err := bus.Last(ctx, r.Conn, bus.EventsOf(op), op.Filter(id))
	if err != nil {
		return e, err
	}
	if there {
		e.State = messages.StateOf(last.Subject)
	}
	filters := map[string][]string{bus.EventsOf(op): {op.Filter(id)}}
	if op == messages.Enroll {
		for _, about := range []messages.Operation{messages.Application, messages.Deduction, messages.Callback} {
			filters[bus.MandateEvents] = append(filters[bus.MandateEvents], about.Filter(id))
		}
	}
	if op == messages.Send {
		filters[bus.MailEvents] = append(filters[bus.MailEvents], messages.Batch.Filter(id+".*"))
		filters[bus.MailDeliveries] = []string{messages.Delivery.Filter(id), messages.Log.Filter(id + ".*")}
	}
	for stream, list := range filters {
		for _, filter := range list {
			if err := e.count(ctx, r.JS, stream, filter); err != nil {
				return e, err
			}
		}
	}
	if e.dead, err = deadOf(ctx, r.Conn, op, id); err != nil {
		return e, err
	}
	e.DeadLetters = len(e.dead)
	if !there && (op != messages.Enroll || e.Events == 0) { // callbacks of a mandate come for years
		return e, fmt.Errorf("%w: no event of %s %s is kept; one that waits is cancelled first", ErrNothingDone, op, id)
	}
	if op == messages.Send {
		if err := e.message(ctx, r.Conn, last, now); err != nil {
			return e, err
		}
	}
	waits, err := r.InQueue(ctx, op, id)
	switch {
	case err != nil:
		return e, err
	case there && !e.State.Final(op):
		e.Refused = "it is " + string(e.State) + ": cancel it first, or wait for its end"
	case waits:
		e.Refused = "its queue has a message of it, which goes when a program takes it"
	}
	return e, nil
}

// count finds the subjects of a request in a stream.
func (e *Erasure) count(ctx context.Context, js jetstream.JetStream, stream, filter string) error {
	s, err := js.Stream(ctx, stream)
	if err != nil {
		return fmt.Errorf("stream %s: %w", stream, err)
	}
	info, err := s.Info(ctx, jetstream.WithSubjectFilter(filter))
	if err != nil {
		return fmt.Errorf("stream %s: %w", stream, err)
	}
	for subject, n := range info.State.Subjects {
		tokens := strings.Split(subject, ".")
		if op := messages.Operation(tokens[0] + "." + tokens[1]); op == messages.Batch {
			e.batches = append(e.batches, strings.Join(tokens[3:], "."))
		}
		if messages.StateOf(subject) == messages.Erased {
			continue
		}
		e.subjects[stream] = append(e.subjects[stream], subject)
		switch messages.Operation(tokens[0] + "." + tokens[1]) {
		case messages.Log:
			e.Calls += int(n)
		case messages.Delivery:
			e.Rows += int(n)
		default:
			e.Events += int(n)
		}
	}
	slices.Sort(e.batches)
	e.batches = slices.Compact(e.batches)
	return nil
}

// message finds out to how many a message was, and whether all its rows have come.
func (e *Erasure) message(ctx context.Context, nc *nats.Conn, last bus.Message, now time.Time) error {
	var ended struct {
		Recipients int `json:"recipients"`
		Accepted   int `json:"accepted"`
	}
	for _, state := range []messages.State{messages.Started, e.State} { // some outcomes do not say it
		m, there, err := bus.Last(ctx, nc, bus.MailEvents, messages.Send.Subject(state, e.RequestID))
		if err != nil {
			return err
		}
		if there {
			_ = json.Unmarshal(m.Data, &ended) // what cannot be read says nothing
		}
	}
	e.Recipients = ended.Recipients
	m, there, err := bus.Last(ctx, nc, bus.MailDeliveries, messages.Delivery.Subject(messages.Summary, e.RequestID))
	if err != nil {
		return err
	}
	var rows messages.SummaryBody
	if there {
		_ = json.Unmarshal(m.Data, &rows)
	}
	until := last.Time.Add(rowsCome)
	complete := there && rows.Accepted > 0 && rows.Delivered+rows.Bounced >= max(rows.Accepted, ended.Accepted)
	maySend := e.State == messages.Accepted || e.State == messages.Partial || e.State == messages.Uncertain || e.State == messages.Resolved
	if maySend && !complete && now.Before(until) {
		e.Awaits = &messages.Time{Time: until}
	}
	return nil
}

// deadOf are the sequences of the dead letters of a request.
func deadOf(ctx context.Context, nc *nats.Conn, op messages.Operation, id string) (sequences []uint64, err error) {
	err = bus.Scan{Stream: bus.DeadLetters, Filter: "dead." + op.Requested()}.Each(ctx, nc, func(m bus.Message) bool {
		if m.Header.Get(bus.HeaderRequestID) == id {
			sequences = append(sequences, m.Sequence)
		}
		return true
	})
	return sequences, err
}

// Says is what is removed, in words.
func (e Erasure) Says() string {
	return fmt.Sprintf("%s; remove %d events, %d records of calls, %d rows of the sending log, %d dead letters", cmp.Or(string(e.State), "its history is gone"), e.Events, e.Calls, e.Rows, e.DeadLetters)
}

// Erase removes what is stored of a request. First an event without data is stored over its
// last one and over that of each of its batches: from then on the id is not run again,
// whoever had it. A second time it removes what the first one left. Errors: those of Do;
// ErrNothingDone when it is refused, or went on meanwhile.
func (p Person) Erase(ctx context.Context, e Erasure, why string) error {
	_, err := p.Do(ctx, Act{Verb: Erase, Operation: e.Operation, Target: e.RequestID, Why: why, Plan: e.Says()}, func(ctx context.Context) (string, error) {
		if e.Refused != "" {
			return "", fmt.Errorf("%w: %s", ErrNothingDone, e.Refused)
		}
		if e.State != "" { // else its history is gone
			if err := p.markErased(ctx, e.Operation, e.RequestID); err != nil {
				return "", err
			}
		}
		for _, batch := range e.batches {
			if err := p.markErased(ctx, messages.Batch, batch); err != nil {
				return "", err
			}
		}
		for _, sequence := range e.dead {
			if err := p.remove(ctx, bus.DeadLetters, sequence); err != nil {
				return "", err
			}
		}
		for _, rows := range rowsOf[e.Operation] {
			if err := p.keepRowsAway(ctx, rows, e.RequestID); err != nil {
				return "", err
			}
		}
		for _, stream := range []string{bus.MailDeliveries, bus.MandateEvents, bus.MailEvents} {
			if err := p.purge(ctx, stream, e.subjects[stream]); err != nil {
				return "", err
			}
		}
		return "erased", nil
	})
	return err
}

// markErased stores an event without data over the last one of a history.
func (p Person) markErased(ctx context.Context, op messages.Operation, id string) error {
	h := &history.History{Log: bus.EventStore{Publisher: p.Publisher, Source: "/errand"}, Operation: op, ID: id}
	_, err := h.Read(ctx)
	done, ok := errors.AsType[*history.AlreadyDoneError](err)
	body := &messages.ErasedBody{}
	switch {
	case ok && done.State == messages.Erased:
		return nil
	case ok && op != messages.Batch:
		var was struct {
			Reason messages.Reason `json:"reason"`
		}
		_ = json.Unmarshal(done.Body, &was) // what cannot be read has none
		body.Was = &messages.PriorOutcome{State: done.State, Reason: was.Reason}
	case op != messages.Batch:
		return fmt.Errorf("%w: %s %s is no longer at its end", ErrNothingDone, op, id)
	case h.Sequence() == 0: // of no batch
		return err
	}
	err = h.Store(ctx, messages.Erased, body)
	if errors.Is(err, history.ErrFenced) {
		return fmt.Errorf("%w: %s %s went on meanwhile", ErrNothingDone, op, id)
	}
	return err
}

// rowsOf are the events about rows of lists that belong to a request.
var rowsOf = map[messages.Operation][]messages.Operation{messages.Send: {messages.Delivery}, messages.Enroll: {messages.Application, messages.Deduction}}

// keepRowsAway leaves the ids of a request's rows, so that no poller publishes them again.
func (p Person) keepRowsAway(ctx context.Context, of messages.Operation, id string) error {
	var rows []bus.Message
	err := bus.Scan{Stream: bus.EventsOf(of), Filter: of.Filter(id)}.Each(ctx, p.Conn, func(m bus.Message) bool {
		rows = append(rows, m)
		return true
	})
	for _, m := range rows {
		if err == nil {
			err = p.keepRowAway(ctx, m)
		}
	}
	return err
}

// keepRowAway leaves the ids of a row in every state in which it may be published.
func (p Person) keepRowAway(ctx context.Context, m bus.Message) error {
	tokens := strings.Split(m.Subject, ".")
	of, state := messages.Operation(tokens[0]+"."+tokens[1]), messages.StateOf(m.Subject)
	switch {
	case state == messages.Erased:
		return nil
	case of != messages.Delivery: // whatever the state
	case !slices.Contains([]messages.State{messages.Delivered, messages.Deferred, messages.Bounced, messages.Unknown}, state):
		return nil
	}
	var row struct {
		Entry json.RawMessage `json:"entry"`
	}
	_ = json.Unmarshal(m.Data, &row) // its own id is left in any case
	ids := []string{m.Header.Get("ce-id")}
	if of == messages.Delivery && (state == messages.Deferred || state == messages.Unknown) { // it may be seen in another state yet
		ids = append(ids, deliveries.IDsOf(row.Entry)...)
	}
	for _, id := range ids {
		body := &messages.ErasedBody{Common: messages.Common{At: messages.Time{Time: time.Now()}}, EventID: id}
		e := messages.Event{Operation: of, State: messages.Erased, ID: tokens[3], Body: body}
		if e.ID != messages.Unmatched {
			body.RequestID = e.ID
		}
		data, err := e.Encode()
		if err != nil {
			return err
		}
		out := &nats.Msg{Subject: e.Subject(), Data: data, Header: nats.Header{nats.MsgIdHdr: {"erased." + id}}}
		e.Headers(out.Header, "/errand", id)
		if err := p.Publisher.Keep(ctx, out); err != nil {
			return fmt.Errorf("act: store %s: %w", e.Subject(), err)
		}
	}
	return nil
}

// purge removes what a stream has on subjects, never up to a sequence.
func (p Person) purge(ctx context.Context, stream string, subjects []string) error {
	if len(subjects) == 0 {
		return nil
	}
	s, err := p.JS.Stream(ctx, stream)
	if err != nil {
		return fmt.Errorf("stream %s: %w", stream, err)
	}
	for _, subject := range subjects {
		if err := s.Purge(ctx, jetstream.WithPurgeSubject(subject)); err != nil {
			return fmt.Errorf("nats: purge %s: %w", subject, err)
		}
	}
	return nil
}

// remove deletes one message and overwrites it; it is no error if it is gone.
func (p Person) remove(ctx context.Context, stream string, sequence uint64) error {
	s, err := p.JS.Stream(ctx, stream)
	if err != nil {
		return fmt.Errorf("stream %s: %w", stream, err)
	}
	err = s.SecureDeleteMsg(ctx, sequence)
	if api, ok := errors.AsType[*jetstream.APIError](err); ok && api.ErrorCode == jetstream.JSErrCodeMessageNotFound || errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("nats: delete message %d of %s: %w", sequence, stream, err)
	}
	return nil
}

// nameable reports whether a text can be the id in a subject.
func nameable(id string) bool { return id != "" && !strings.ContainsAny(id, "*>. \t\r\n") }
