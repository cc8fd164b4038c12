package bus

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

	"errand/internal/poll"
	"errand/internal/retry"
	"errand/pkg/messages"
)

// turns is the subject on which pollers take the turn to tell. Every delivery
// event is stored on condition that the last message there is still the teller's
// own: from the moment another poller has written there nothing of the old teller
// is stored any more, however long it was on its way. So whoever takes the turn
// and then reads the stream up to its own message knows all that was ever told.
//
// A fence on the stream's last sequence would not do: of a chain of writes with
// predicted sequences, those behind a refused one fit again as soon as others have
// written as many messages as were refused.
const turns = "mail.log.turn"

// Deliveries tells deliveries in the stream MAIL_DELIVERIES. It implements
// poll.Sink, for one poller. Beside what any program asks for it publishes to
// mail.delivery.>, mail.log.turn, mail.log.watermark, mail.log.concluded.>,
// mail.send.resolved.*, $JS.API.DIRECT.GET of MAIL_DELIVERIES and MAIL_EVENTS, and
// $JS.API.CONSUMER.CREATE, DELETE and MSG.NEXT and $JS.API.STREAM.MSG.GET of both.
type Deliveries struct {
	js     jetstream.JetStream
	log    Log
	tally  *tally
	writer string

	turn    uint64 // sequence of our message on turns; 0: the turn is not ours
	after   uint64 // sequence of the last message on turns, as far as is known
	told    reader
	grouped bool // the stream has replicas: events are stored in batches

	sent, outcomes reader // see Requests
}

var (
	_ poll.Sink     = (*Deliveries)(nil)
	_ poll.Requests = (*Deliveries)(nil)
)

// NewDeliveries makes a sink; source is the ce-source of the events. It stops with
// the connection of p.
func NewDeliveries(js jetstream.JetStream, p *Publisher, source string) (*Deliveries, error) {
	t, err := newTally(p.nc)
	if err != nil {
		return nil, err
	}
	return &Deliveries{js: js, log: Log{Publisher: p, Source: source}, tally: t, writer: rand.Text(),
		told: reader{stream: MailDeliveries}, sent: reader{stream: MailDeliveries}, outcomes: reader{stream: MailEvents}}, nil
}

// Watermark gives the last watermark that was stored.
func (d *Deliveries) Watermark(ctx context.Context) (messages.Watermark, error) {
	var w messages.Watermark
	e, err := d.last(ctx, messages.Log.Subject(messages.Marked, ""))
	if err != nil || e == nil {
		return w, err
	}
	return w, messages.DecodeEvent(e.data, &w)
}

// lastTries is how often a read is tried before it is an error.
const lastTries = 5

// last reads the last message on a subject of the stream; nil: there is none.
func (d *Deliveries) last(ctx context.Context, subject string) (*stored, error) {
	for try := 1; ; try++ {
		e, err := d.log.last(ctx, messages.Delivery, subject)
		if err == nil {
			return e, nil
		}
		if try == lastTries || !retry.Pause(ctx, time.Duration(try)*100*time.Millisecond) {
			return nil, fmt.Errorf("bus: read %s: %w", subject, err)
		}
	}
}

// Learn takes the turn to tell and gives the events in the stream up to there,
// headers only: those that it did not give before or, the first time and anew, those since
// the time since.
func (d *Deliveries) Learn(ctx context.Context, since time.Time, anew bool) iter.Seq2[poll.Told, error] {
	return func(yield func(poll.Told, error) bool) {
		turn, err := d.take(ctx)
		if err != nil {
			yield(poll.Told{}, err)
			return
		}
		if anew || turn < d.told.next { // a new stream
			d.told.next = 0
		}
		if d.told.next == 0 {
			d.told.since = since
		}
		switch whole, err := d.read(ctx, turn, yield); {
		case err != nil:
			yield(poll.Told{}, fmt.Errorf("bus: read deliveries: %w", err))
		case whole:
			d.turn = turn
		}
	}
}

// take writes a message on turns. Whoever had the turn cannot store anything after
// it, nor can an earlier write of ours that is still on its way.
func (d *Deliveries) take(ctx context.Context) (uint64, error) {
	d.turn = 0
	body, _ := json.Marshal(map[string]string{"writer": d.writer}) // texts always encode
	for try := 1; ; try++ {
		if d.after == 0 || try > 1 {
			e, err := d.last(ctx, turns)
			if err != nil {
				return 0, err
			}
			d.after = 0
			if e != nil {
				d.after = e.seq
			}
		}
		m := &nats.Msg{Subject: turns, Data: body, Header: nats.Header{"content-type": {"application/json"}}}
		fence(m.Header, d.after)
		a, err := d.log.Publisher.Publish(ctx, m)
		if err == nil {
			d.after = a.Sequence
			return a.Sequence, nil
		}
		if final(err) && !conflict(err) || try == takeTries || !retry.Pause(ctx, time.Duration(try-1)*50*time.Millisecond) {
			return 0, fmt.Errorf("bus: take the turn to tell: %w", err)
		}
	}
}

const takeTries = 10

// fence makes a write depend on what is last on turns. In a cluster writes in
// flight are kept apart by this subject, so all of them name the same one.
func fence(h nats.Header, last uint64) {
	h[jetstream.ExpectedLastSubjSeqHeader] = []string{strconv.FormatUint(last, 10)}
	h[expectedSubject] = []string{turns}
}

// Tell stores events over the turn that Learn took. See poll.Sink for the errors.
func (d *Deliveries) Tell(ctx context.Context, events []messages.Event) (int, error) {
	if d.turn == 0 {
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
	if !d.grouped {
		stored, err = d.each(ctx, ms)
		if !grouping(err) {
			return stored, d.settle(err)
		}
		// Another write of ours is in flight: in a cluster there is one fence at a
		// time. Batches have one each. Those behind the first that was refused may
		// be stored or not, so that must be learned.
		d.grouped = true
		return stored, d.settle(err)
	}
	for stored < len(ms) && err == nil {
		n := min(len(ms)-stored, mostInBatch)
		err = d.batch(ctx, ms[stored:stored+n])
		for try := 1; try < takeTries && grouping(err) && retry.Pause(ctx, time.Duration(try)*time.Millisecond); try++ {
			err = d.batch(ctx, ms[stored:stored+n]) // the one before is acknowledged, but still in the server's books
		}
		if err == nil {
			stored += n
		}
	}
	return stored, d.settle(err)
}

// settle gives the turn up after any error: what is still on its way must not be
// stored after it was told again.
func (d *Deliveries) settle(err error) error {
	if err == nil {
		return nil
	}
	d.turn = 0
	if final(err) && !conflict(err) && !duplicate(err) {
		return fmt.Errorf("bus: store deliveries: %w", err)
	}
	return fmt.Errorf("%w: %w", poll.ErrBehind, err)
}

// grouping tells the answer of a cluster to a second fenced write in flight.
func grouping(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant
}

// duplicate tells the answers to an event whose id is in the stream's duplicate
// window already, or on its way into it.
func duplicate(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && (api.ErrorCode == errCodeDuplicateInBatch || api.ErrorCode == errCodeDuplicateInFlight)
}

const (
	errCodeDuplicateInFlight = 10158
	errCodeDuplicateInBatch  = 10201
)

// roomForHeaders is more than those of an event take.
const roomForHeaders = 4 << 10

// recipient is the header that says of which recipient an event tells: see poll.Told.
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
		return nil, fmt.Errorf("bus: %s is no event of the sending log", e.Type())
	}
	for int64(len(body))+roomForHeaders > d.log.Publisher.nc.MaxPayload() && messages.Abridge(e.Body) {
		if body, err = e.Encode(); err != nil {
			return nil, err
		}
	}
	m := &nats.Msg{Subject: e.Subject(), Data: body, Header: make(nats.Header, headers)}
	e.Headers(m.Header, d.log.Source, id)
	if note != "" {
		m.Header[recipient] = []string{note}
	}
	return m, nil
}
