package sink

import (
	"context"
	"iter"

	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/lists/deliveries"
	"errand/internal/lists/sweep"
	"errand/pkg/messages"
)

// Deliveries stores deliveries in the stream MAIL_DELIVERIES, for one sweeper and its
// goroutine. Beside what any program asks for it publishes to
// mail.delivery.>, mail.log.turn, mail.log.watermark, mail.send.resolved.*, $JS.API.DIRECT.GET of MAIL_DELIVERIES and MAIL_EVENTS, and
// $JS.API.CONSUMER.CREATE, DELETE and MSG.NEXT and $JS.API.STREAM.MSG.GET of both.
type Deliveries struct {
	*Store
	sent, outcomes reader // see Requests
}

// New makes a sink over the connection that js and p share; source is the ce-source of the events.
func New(js jetstream.JetStream, p *bus.Publisher, source string) *Deliveries {
	s := open(js, p, Events{Operation: messages.Log, Leadership: "mail.log.turn", Source: source,
		Filters: []string{messages.Delivery.Subject("*", "*")}})
	d := &Deliveries{Store: s, sent: reader{stream: s.stream}, outcomes: reader{stream: bus.MailEvents}}
	s.readers = append(s.readers, &d.sent, &d.outcomes) // read again with the deliveries
	return d
}

// Learn is the store's, with what the events say about rows and requests.
func (d *Deliveries) Learn(ctx context.Context) iter.Seq2[deliveries.StoredEvent, error] {
	return func(yield func(deliveries.StoredEvent, error) bool) {
		for s, err := range d.Store.Learn(ctx) {
			e, ok := parse(s)
			if (ok || err != nil) && !yield(e, err) {
				return
			}
		}
	}
}

// parse reads the headers of an event; ok says that it is about a row or a request.
func parse(s Stored) (e deliveries.StoredEvent, ok bool) {
	subject := messages.ParseSubject(s.Subject)
	e.At, e.State, e.Request, e.Note = s.At, subject.State, subject.ID, s.Note
	ok = e.Request != ""
	switch {
	case !ok:
	case e.State == messages.Summary:
		e.Note = s.ID
	case e.State == messages.Overdue:
	default:
		e.ID, ok = sweep.ParseID(s.ID)
	}
	return e, ok
}
