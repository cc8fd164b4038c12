// Package sink stores the log poller's events in JetStream, and reads back what the
// poller needs to know: its own events, the records of calls, the outcomes of requests.
//
//	Learn ─► become the active publisher ─► read what was published up to there
//	Publish ─► store events, each fenced on that leadership
//	Requests ─► what was sent and what became of it;  Resolve ─► what the log proved
package sink

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/history"
	"errand/internal/poll"
	"errand/internal/retry"
	"errand/pkg/messages"
)

// leadership is the subject on which pollers become the active publisher. Every delivery
// event is stored on condition that the last message there is still the publisher's own,
// whose sequence is its fencing token: from the moment another poller has written there
// nothing of the former one is stored any more, however long it was on its way. So
// whoever takes the leadership and then reads the stream up to its own message knows all
// that was ever published.
//
// A fence on the stream's last sequence would not do: of a chain of writes with
// predicted sequences, those behind a refused one fit again as soon as others have
// written as many messages as were refused.
const leadership = "mail.log.turn"

// Deliveries stores deliveries in the stream MAIL_DELIVERIES. It implements
// poll.Sink, for one poller. Beside what any program asks for it publishes to
// mail.delivery.>, mail.log.turn, mail.log.watermark, mail.log.concluded.>,
// mail.send.resolved.*, $JS.API.DIRECT.GET of MAIL_DELIVERIES and MAIL_EVENTS, and
// $JS.API.CONSUMER.CREATE, DELETE and MSG.NEXT and $JS.API.STREAM.MSG.GET of both.
type Deliveries struct {
	js        jetstream.JetStream
	publisher *bus.Publisher
	events    bus.EventStore
	tally     *tally
	writer    string

	token     uint64 // sequence of our message on leadership; 0: another poller may be active
	last      uint64 // sequence of the last message there, as far as is known; 0: it is to be read
	published reader
	batched   bool // the stream has replicas: events are stored in batches

	sent, outcomes reader // see Requests
}

var (
	_ poll.Sink     = (*Deliveries)(nil)
	_ poll.Requests = (*Deliveries)(nil)
)

// New makes a sink over the connection that js and p share, and ends with it; source is
// the ce-source of the events.
func New(js jetstream.JetStream, p *bus.Publisher, source string) (*Deliveries, error) {
	t, err := newTally(js.Conn())
	if err != nil {
		return nil, err
	}
	return &Deliveries{js: js, publisher: p, events: bus.EventStore{Publisher: p, Source: source}, tally: t, writer: rand.Text(),
		published: reader{stream: bus.MailDeliveries}, sent: reader{stream: bus.MailDeliveries}, outcomes: reader{stream: bus.MailEvents}}, nil
}

// Watermark gives the last watermark that was stored.
func (d *Deliveries) Watermark(ctx context.Context) (messages.Watermark, error) {
	var w messages.Watermark
	e, err := d.read(ctx, messages.Log.Subject(messages.Marked, ""))
	if err != nil || e.Sequence == 0 {
		return w, err
	}
	return w, messages.DecodeEvent(e.Body, &w)
}

// read gives the last message on a subject of the stream; a zero one when there is none.
func (d *Deliveries) read(ctx context.Context, subject string) (history.Entry, error) {
	ctx, cancel := context.WithTimeout(ctx, retry.Storage)
	defer cancel()
	return d.events.Last(ctx, messages.Delivery, subject)
}

// Learn takes the leadership and gives the events in the stream up to there, headers
// only: those that it did not give before or, the first time and with again, those since
// the time since.
func (d *Deliveries) Learn(ctx context.Context, since time.Time, again bool) iter.Seq2[poll.StoredEvent, error] {
	return func(yield func(poll.StoredEvent, error) bool) {
		token, err := d.lead(ctx)
		if err != nil {
			yield(poll.StoredEvent{}, err)
			return
		}
		if again || token < d.published.next { // the stream was made again
			d.published.next = 0
		}
		if d.published.next == 0 {
			d.published.since = since
		}
		complete, err := d.replay(ctx, token, yield)
		if err != nil {
			yield(poll.StoredEvent{}, fmt.Errorf("sink: read deliveries: %w", err))
		}
		if err == nil && complete {
			d.token = token
		}
	}
}

// lead writes a message on leadership and gives its sequence. Whoever was active cannot
// store anything after it, nor can an earlier write of ours that is still on its way.
func (d *Deliveries) lead(ctx context.Context) (uint64, error) {
	d.token = 0
	body, _ := json.Marshal(map[string]string{"writer": d.writer}) // texts always encode
	for try := 1; ; try++ {
		if d.last == 0 || try > 1 {
			e, err := d.read(ctx, leadership)
			if err != nil {
				return 0, err
			}
			d.last = e.Sequence
		}
		m := &nats.Msg{Subject: leadership, Data: body, Header: nats.Header{"content-type": {"application/json"}}}
		bus.Fence(m.Header, leadership, d.last)
		a, err := d.publisher.Publish(ctx, m)
		if err == nil {
			d.last = a.Sequence
			return a.Sequence, nil
		}
		if bus.IsFinal(err) || try == leadTries || !retry.Pause(ctx, time.Duration(try-1)*retry.LeadStep) {
			return 0, fmt.Errorf("sink: become the active publisher: %w", err)
		}
	}
}

const leadTries = 10

// Publish stores events under the leadership that Learn took. See poll.Sink for the errors.
func (d *Deliveries) Publish(ctx context.Context, events []messages.Event) (int, error) {
	if d.token == 0 {
		return 0, poll.ErrBehind
	}
	if len(events) == 0 {
		return 0, nil
	}
	ms := make([]*nats.Msg, len(events))
	for i, e := range events {
		m, err := d.encode(e)
		if err != nil {
			return 0, err
		}
		ms[i] = m
	}
	stored, err := 0, error(nil)
	if !d.batched {
		stored, err = d.each(ctx, ms)
		if !inFlight(err) {
			return stored, d.settle(err)
		}
		// Another write of ours is in flight: in a cluster there is one fence at a
		// time. Batches have one each. Those behind the first that was refused may
		// be stored or not, so that must be learned.
		d.batched = true
		return stored, d.settle(err)
	}
	for stored < len(ms) && err == nil {
		n := min(len(ms)-stored, maxInBatch)
		err = d.batch(ctx, ms[stored:stored+n])
		for try := 1; try < leadTries && inFlight(err) && retry.Pause(ctx, time.Duration(try)*retry.BatchStep); try++ {
			err = d.batch(ctx, ms[stored:stored+n]) // the one before is acknowledged, but still in the server's books
		}
		if err == nil {
			stored += n
		}
	}
	return stored, d.settle(err)
}

// settle gives the leadership up after any error: what is still on its way must not be
// stored after it was published again.
func (d *Deliveries) settle(err error) error {
	if err == nil {
		return nil
	}
	d.token = 0
	if bus.IsFinal(err) {
		return fmt.Errorf("sink: store deliveries: %w", err)
	}
	return fmt.Errorf("%w: %w", poll.ErrBehind, err)
}

// inFlight reports the answer of a cluster to a second fenced write in flight.
func inFlight(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant
}

// headers is how many an event has; beyond 14 a map takes twice the room.
const headers = 14

// roomForHeaders is more than those of an event take.
const roomForHeaders = 4 << 10

// recipient is the header that says which recipient an event is about: see poll.StoredEvent.
const recipient = "Errand-Recipient"

// encode makes the message of an event. The id of a delivery event is its
// Nats-Msg-Id, by which Learn knows it again.
func (d *Deliveries) encode(e messages.Event) (*nats.Msg, error) {
	body, err := e.Encode()
	if err != nil {
		return nil, err
	}
	id, note := "", ""
	switch b := e.Body.(type) {
	case *messages.DeliveryBody:
		id, note = b.EventID, b.Recipient
	case *messages.OverdueBody:
		note = poll.Place(b.Batch, b.Recipient)
		id = e.Subject() + "." + note
	case *messages.SummaryBody, *messages.ConcludedBody:
		id = poll.NoteOf(e)
	case *messages.Watermark:
		id = e.Type() + "." + strconv.FormatInt(b.CompleteThrough.UnixMilli(), 10) + "." + strconv.FormatInt(b.At.UnixMilli(), 10)
	default:
		return nil, fmt.Errorf("sink: %s is no event of the sending log", e.Type())
	}
	for int64(len(body))+roomForHeaders > d.js.Conn().MaxPayload() && messages.Abridge(e.Body) {
		if body, err = e.Encode(); err != nil {
			return nil, err
		}
	}
	m := &nats.Msg{Subject: e.Subject(), Data: body, Header: make(nats.Header, headers)}
	e.Headers(m.Header, d.events.Source, id)
	m.Header[nats.MsgIdHdr] = []string{id}
	if note != "" {
		m.Header[recipient] = []string{note}
	}
	return m, nil
}
