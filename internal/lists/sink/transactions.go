package sink

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/history"
	"errand/internal/lists/sweep"
	"errand/internal/lists/transactions"
	"errand/internal/retry"
	"errand/pkg/messages"
)

// Transactions stores the transaction list's events in MANDATE_EVENTS, for one sweeper, and reads enrollments there.
type Transactions struct {
	*Store
	started reader
}

// NewTransactions makes a sink over the connection that js and p share; source is the ce-source of the events.
func NewTransactions(js jetstream.JetStream, p *bus.Publisher, source string) *Transactions {
	s := open(js, p, Events{Operation: messages.Transactions, Leadership: "mandate.transactions.turn", Source: source,
		Identify: identifyTransaction,
		Filters:  []string{messages.Application.Subject("*", "*"), messages.Deduction.Subject("*", "*")}})
	t := &Transactions{Store: s, started: reader{stream: s.stream}}
	s.readers = append(s.readers, &t.started)
	return t
}

func identifyTransaction(e messages.Event) (id, note string) {
	switch b := e.Body.(type) {
	case *messages.TransactionBody:
		return b.EventID, ""
	case *messages.Watermark:
		return watermarkID(e, b), ""
	}
	return "", ""
}

// Learn is the store's, with records alone.
func (t *Transactions) Learn(ctx context.Context) iter.Seq2[transactions.Learned, error] {
	return func(yield func(transactions.Learned, error) bool) {
		for s, err := range t.Store.Learn(ctx) {
			id, ok := sweep.ParseID(s.ID)
			if (ok || err != nil) && !yield(transactions.Learned{ID: id, Status: messages.StateOf(s.Subject), At: s.At}, err) {
				return
			}
		}
	}
}

// Started yields the events that announce enrollments, each once, up to the last one that the stream's leader has.
func (t *Transactions) Started(ctx context.Context) iter.Seq2[transactions.Started, error] {
	filter := messages.Enroll.Subject(messages.Started, "*")
	return func(yield func(transactions.Started, error) bool) {
		end, err := t.end(ctx, t.stream, filter)
		if err != nil {
			yield(transactions.Started{}, err)
			return
		}
		_, err = t.started.bodies(ctx, t.js, []string{filter}, end, time.Time{}, func(m jetstream.Msg, meta *jetstream.MsgMetadata) bool {
			var b messages.EnrollStarted
			if messages.DecodeEvent(m.Data(), &b) != nil || b.OrderNumber == "" {
				return true
			}
			return yield(transactions.Started{Sequence: meta.Sequence.Stream, Request: messages.ParseSubject(m.Subject()).ID,
				Order: b.OrderNumber, At: meta.Timestamp}, nil)
		})
		if err != nil {
			yield(transactions.Started{}, err)
		}
	}
}

// Request returns the id of the request whose event has a sequence, "" when it is gone.
func (t *Transactions) Request(ctx context.Context, sequence uint64) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, retry.Storage)
	defer cancel()
	subject, err := bus.SubjectAt(ctx, t.js.Conn(), t.stream, sequence)
	return messages.ParseSubject(subject).ID, err
}

// Open returns the first event of an operation in a state: see mandates.FollowUp.
func (t *Transactions) Open(ctx context.Context, op messages.Operation, state messages.State, from uint64, since time.Time) (
	history.Pending, error,
) {
	return t.events.Open(ctx, op, state, from, since)
}

// Last returns the last event under a filter of an operation; a zero one when there is none.
func (t *Transactions) Last(ctx context.Context, op messages.Operation, filter string) (history.Entry, error) {
	return t.events.Last(ctx, op, filter)
}

// First is the sequence of the oldest event that is kept.
func (t *Transactions) First(ctx context.Context) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, retry.Storage)
	defer cancel()
	s, err := t.js.Stream(ctx, t.stream)
	if err != nil {
		return 0, fmt.Errorf("sink: %w", err)
	}
	return s.CachedInfo().State.FirstSeq, nil
}
