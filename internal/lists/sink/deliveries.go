package sink

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/history"
	"errand/internal/lists/deliveries"
	"errand/internal/lists/sweep"
	"errand/internal/retry"
	"errand/pkg/messages"
)

// Deliveries stores the events of the sending log in MAIL_DELIVERIES, for one sweeper, and reads there and in MAIL_EVENTS what
// they are matched to.
type Deliveries struct {
	*Store
	sent, outcomes reader // see Requests
}

// New makes a sink over the connection that js and p share; source is the ce-source of the events.
func New(js jetstream.JetStream, p *bus.Publisher, source string) *Deliveries {
	s := open(js, p, source, messages.Log, messages.Delivery.Subject("*", "*"))
	d := &Deliveries{Store: s, sent: reader{stream: s.stream}, outcomes: reader{stream: bus.MailEvents}}
	s.readers = append(s.readers, &d.sent, &d.outcomes) // read again with the deliveries
	return d
}

// Learn returns what the events say about rows and requests.
func (d *Deliveries) Learn(ctx context.Context) iter.Seq2[deliveries.StoredEvent, error] {
	return learn(ctx, d.Store, parse)
}

// parse reads the headers of an event; ok says that it is about a row or a request.
func parse(s Stored) (e deliveries.StoredEvent, ok bool) {
	subject := messages.ParseSubject(s.Subject)
	e.At, e.State, e.Request, e.Note = s.At, subject.State, subject.ID, s.Note
	if e.State == messages.Summary {
		e.Note = s.ID
		return e, e.Request != ""
	}
	e.ID, ok = sweep.ParseID(s.ID)
	return e, ok && e.Request != ""
}

// Requests yields the records of calls in MAIL_DELIVERIES and then the events in MAIL_EVENTS, those since a time or since
// the last reading, up to the last of each. It asks the streams' leaders for the last ones, first for the event: so every
// outcome comes with the record of its call.
func (d *Deliveries) Requests(ctx context.Context, since time.Time) iter.Seq2[deliveries.Record, error] {
	records := []string{messages.Log.Subject(messages.Sent, ">")}
	return func(yield func(deliveries.Record, error) bool) {
		take := func(m jetstream.Msg, meta *jetstream.MsgMetadata) bool {
			return yield(deliveries.Record{Subject: m.Subject(), Sequence: meta.Sequence.Stream, Body: m.Data()}, nil)
		}
		var sent history.Entry
		outcome, err := d.end(ctx, messages.Send, "mail.>")
		if err == nil {
			sent, err = d.end(ctx, messages.Log, records...)
		}
		complete := err == nil
		if complete {
			complete, err = d.sent.bodies(ctx, d.js, records, sent, since, take)
		}
		if complete {
			_, err = d.outcomes.bodies(ctx, d.js, nil, outcome, since, take)
		}
		if err != nil {
			yield(deliveries.Record{}, err)
		}
	}
}

// Resolve stores what became of a request over its uncertain event. One that another poller stored is as good.
func (d *Deliveries) Resolve(ctx context.Context, e messages.Event, over uint64) error {
	ctx, cancel := context.WithTimeout(ctx, retry.Storage)
	defer cancel()
	_, err := d.events.Append(ctx, history.Record{Event: e, Last: over, Writer: d.writer})
	if err != nil && !errors.Is(err, history.ErrFenced) {
		return err
	}
	return nil
}
