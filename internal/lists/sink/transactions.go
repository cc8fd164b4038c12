package sink

import (
	"context"
	"iter"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/lists/sweep"
	"errand/internal/lists/transactions"
	"errand/internal/retry"
	"errand/pkg/messages"
)

// Transactions stores the transaction list's events in MANDATE_EVENTS, for one sweeper, and reads enrollments there.
type Transactions struct {
	*Store
	bus.EventStore
	started reader
}

// NewTransactions makes a sink over the connection that js and p share; source is the ce-source of the events.
func NewTransactions(js jetstream.JetStream, p *bus.Publisher, source string) *Transactions {
	s := open(js, p, source, messages.Transactions, messages.Application.Subject("*", "*"), messages.Deduction.Subject("*", "*"))
	t := &Transactions{Store: s, EventStore: s.events, started: reader{stream: s.stream}}
	s.readers = append(s.readers, &t.started)
	return t
}

// Learn returns the states of records.
func (t *Transactions) Learn(ctx context.Context) iter.Seq2[sweep.Stored, error] {
	return learn(ctx, t.Store, func(s Stored) (sweep.Stored, bool) {
		id, ok := sweep.ParseID(s.ID)
		return sweep.Stored{ID: id, At: s.At}, ok
	})
}

// Candidates yields the events by which requests own order numbers, each once, up to the last one that the stream's leader has.
func (t *Transactions) Candidates(ctx context.Context) iter.Seq2[transactions.Candidate, error] {
	var filters []string
	for _, state := range []messages.State{messages.Started, messages.Failed, messages.Resolved} {
		filters = append(filters, messages.Enroll.Subject(state, "*"))
	}
	return func(yield func(transactions.Candidate, error) bool) {
		end, err := t.end(ctx, messages.Enroll, filters...)
		if err == nil {
			_, err = t.started.bodies(ctx, t.js, filters, end, time.Time{}, func(m jetstream.Msg, meta *jetstream.MsgMetadata) bool {
				c, ok := candidate(m.Subject(), m.Data())
				c.Sequence, c.At = meta.Sequence.Stream, meta.Timestamp
				return !ok || yield(c, nil)
			})
		}
		if err != nil {
			yield(transactions.Candidate{}, err)
		}
	}
}

// candidate reads what a call, a failure or a resolution says of an order number. A request with records has had an effect.
func candidate(subject string, body []byte) (c transactions.Candidate, ok bool) {
	var b messages.EnrollResolved
	if messages.DecodeEvent(body, &b) != nil || b.OrderNumber == "" || b.Outcome == messages.Succeeded || len(b.Evidence) > 0 {
		return c, false
	}
	parsed := messages.ParseSubject(subject)
	return transactions.Candidate{Request: parsed.ID, Order: b.OrderNumber, Failed: parsed.State != messages.Started}, true
}

// Request returns the id of the request whose event has a sequence, "" when it is gone.
func (t *Transactions) Request(ctx context.Context, sequence uint64) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, retry.Storage)
	defer cancel()
	subject, err := bus.SubjectAt(ctx, t.js.Conn(), t.stream, sequence)
	return messages.ParseSubject(subject).ID, err
}

// First is the sequence of the oldest event that is kept.
func (t *Transactions) First(ctx context.Context) (uint64, error) {
	info, err := t.info(ctx)
	if err != nil {
		return 0, err
	}
	return info.State.FirstSeq, nil
}
