package act

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/history"
	"errand/internal/lists/deliveries"
	"errand/internal/oncall/inspect"
	"errand/pkg/messages"
)

// Erase removes what is stored of a request. First an event without data is stored over its
// last one, if that is still kept, and over each batch's: from then on the id is not run again,
// whichever worker had it, and the index forgets it. A second time it removes what the first one left. Errors: as for Do;
// ErrNothingDone when it is refused, or went on meanwhile.
func (p Person) Erase(ctx context.Context, e Erasure, why string) error {
	erase := Act{Verb: Erase, Operation: e.Operation, Target: e.RequestID, Why: why, Plan: e.Says()}
	_, err := p.Do(ctx, erase, func(ctx context.Context) (string, error) {
		if e.Refused != "" {
			return "", fmt.Errorf("%w: %s", ErrNothingDone, e.Refused)
		}
		if err := p.markErased(ctx, e.Operation, e.RequestID); err != nil {
			return "", err
		}
		for _, batch := range e.batches {
			if err := p.markErased(ctx, messages.Batch, batch); err != nil {
				return "", err
			}
		}
		for _, sequence := range e.dead {
			if err := remove(ctx, p.JS, bus.DeadLetters, sequence); err != nil {
				return "", err
			}
		}
		for _, rows := range rowsOf[e.Operation] {
			if err := p.keepRowsAway(ctx, rows, e.RequestID); err != nil {
				return "", err
			}
		}
		// By rows of the sending log a later erasure finds out whether to look for suppressions.
		for _, stream := range []string{bus.Suppressions, bus.MailDeliveries, bus.MandateCallbacks, bus.MandateEvents, bus.MailEvents,
			bus.MandateScheduled, bus.MailScheduled} {
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
		was, _ := history.ReadFacts(done.Body) // what cannot be read has no reason
		body.Was = &messages.PriorOutcome{State: done.State, Reason: was.Reason}
	case op != messages.Batch && h.Sequence() > 0:
		return fmt.Errorf("%w: %s %s is no longer at its end", ErrNothingDone, op, id)
	case h.Sequence() == 0 && (err != nil || op == messages.Batch): // of no batch
		return err
	}
	err = h.Store(ctx, messages.Erased, body)
	if errors.Is(err, history.ErrFenced) {
		return fmt.Errorf("%w: %s %s went on meanwhile", ErrNothingDone, op, id)
	}
	return err
}

// rowsOf are the events about rows of lists that belong to a request.
var rowsOf = map[messages.Operation][]messages.Operation{
	messages.Send:   {messages.Delivery},
	messages.Enroll: {messages.Application, messages.Deduction},
}

// keepRowsAway leaves the ids of a request's rows, so that no poller publishes them again.
func (p Person) keepRowsAway(ctx context.Context, of messages.Operation, id string) error {
	var failed error
	err := bus.EachOf(ctx, p.Conn, bus.EventsOf(of), of.Filter(id), func(m bus.Message) bool {
		failed = p.keepRowAway(ctx, m)
		return failed == nil
	})
	return cmp.Or(failed, err)
}

// keepRowAway leaves the ids of a row in every state in which it may be published.
func (p Person) keepRowAway(ctx context.Context, m bus.Message) error {
	subject := messages.ParseSubject(m.Subject)
	of, state := subject.Operation, subject.State
	if state == messages.Erased || of == messages.Delivery && !slices.Contains(inspect.RowStates, state) {
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
		e := messages.Event{Operation: of, State: messages.Erased, ID: subject.ID, Body: body}
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

// remove deletes one message and overwrites it; it is not an error if it is gone.
func remove(ctx context.Context, js jetstream.JetStream, stream string, sequence uint64) error {
	s, err := js.Stream(ctx, stream)
	if err != nil {
		return fmt.Errorf("stream %s: %w", stream, err)
	}
	err = s.SecureDeleteMsg(ctx, sequence)
	api, ok := errors.AsType[*jetstream.APIError](err)
	if ok && api.ErrorCode == jetstream.JSErrCodeMessageNotFound || errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("nats: delete message %d of %s: %w", sequence, stream, err)
	}
	return nil
}
