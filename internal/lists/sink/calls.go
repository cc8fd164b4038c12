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
	"errand/internal/retry"
	"errand/pkg/messages"
)

// Requests yields the records of calls in MAIL_DELIVERIES and then the events in MAIL_EVENTS, those since a time or since
// the last reading, up to the last of each. It asks the streams' leaders for the last ones, first for the event: so every
// outcome comes with the record of its call.
func (d *Deliveries) Requests(ctx context.Context, since time.Time) iter.Seq2[deliveries.Record, error] {
	records := messages.Log.Subject(messages.Sent, ">")
	return func(yield func(deliveries.Record, error) bool) {
		outcome, err := d.end(ctx, bus.MailEvents, "mail.>")
		if err != nil {
			yield(deliveries.Record{}, err)
			return
		}
		sent, err := d.end(ctx, bus.MailDeliveries, records)
		if err != nil {
			yield(deliveries.Record{}, err)
			return
		}
		if d.follow(ctx, &d.sent, []string{records}, sent, since, yield) {
			d.follow(ctx, &d.outcomes, nil, outcome, since, yield)
		}
	}
}

// follow yields what r did not read yet up to end; false means that it yielded an error, or that no more is wanted.
func (d *Deliveries) follow(ctx context.Context, r *reader, filters []string, end bus.Message, since time.Time,
	yield func(deliveries.Record, error) bool) bool {
	complete, err := r.bodies(ctx, d.js, filters, end, since, func(m jetstream.Msg, meta *jetstream.MsgMetadata) bool {
		return yield(deliveries.Record{Subject: m.Subject(), Sequence: meta.Sequence.Stream, Body: m.Data()}, nil)
	})
	if err != nil {
		yield(deliveries.Record{}, err)
		return false
	}
	return complete
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
