// Package sink stores the log poller's events in JetStream, and reads back what the
// poller needs to know: its own events, the records of calls, the outcomes of requests.
//
//	Learn ─► become the active publisher ─► read what was published up to there
//	Publish ─► store events, each fenced on that leadership, several pages at once
//	Kept ─► since when the stream has all that was published
//	Requests ─► what was sent and what became of it;  Resolve ─► what the log proved
package sink

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"iter"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/deliveries"
	"errand/internal/history"
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

// Deliveries stores deliveries in the stream MAIL_DELIVERIES, for one sweeper and its
// goroutine. Beside what any program asks for it publishes to
// mail.delivery.>, mail.log.turn, mail.log.watermark, mail.log.concluded.>,
// mail.send.resolved.*, $JS.API.DIRECT.GET of MAIL_DELIVERIES and MAIL_EVENTS, and
// $JS.API.CONSUMER.CREATE, DELETE and MSG.NEXT and $JS.API.STREAM.MSG.GET of both.
type Deliveries struct {
	js      jetstream.JetStream
	events  bus.EventStore
	writer  string // names this sink, in what it writes
	acks    *acks
	encoder encoder

	token     uint64 // sequence of our message on leadership; 0: another poller may be active
	batched   bool   // the stream has replicas: events are stored in batches
	published reader

	sent, outcomes reader // see Requests
}

// New makes a sink over the connection that js and p share, and ends with it; source is
// the ce-source of the events.
func New(js jetstream.JetStream, p *bus.Publisher, source string) (*Deliveries, error) {
	a, err := newAcks(js.Conn())
	if err != nil {
		return nil, err
	}
	return &Deliveries{js: js, events: bus.EventStore{Publisher: p, Source: source}, writer: rand.Text()[:13], acks: a,
		encoder:   encoder{source: source, limit: js.Conn().MaxPayload},
		published: reader{stream: bus.MailDeliveries}, sent: reader{stream: bus.MailDeliveries}, outcomes: reader{stream: bus.MailEvents}}, nil
}

// Kept gives since when everything that was published is in the stream; zero: since ever.
// A row that is older and not known was published, and its event has aged out: without
// that limit the rows of the last hours of the retention would be published again, day
// after day, each a while after it was dropped.
//
// It is not the time of the oldest message: after a long absence of pollers, or a purge,
// that is the message by which one of them became active, and rows older than it have
// not been published yet.
func (d *Deliveries) Kept(ctx context.Context) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, retry.Storage)
	defer cancel()
	s, err := d.js.Stream(ctx, bus.MailDeliveries)
	if err != nil {
		return time.Time{}, fmt.Errorf("sink: read since when deliveries are kept: %w", err)
	}
	state, maxAge := s.CachedInfo().State, s.CachedInfo().Config.MaxAge
	if maxAge == 0 || state.LastSeq == 0 || state.Msgs > 0 && state.FirstSeq <= 1 {
		return time.Time{}, nil
	}
	oldest := time.Now().Add(-maxAge)
	if last := state.LastTime; state.Msgs == 0 && !last.IsZero() && last.Before(oldest) {
		return last.Add(time.Minute), nil // all has aged out: what came since was not published, but clocks may differ
	}
	return oldest.Add(max(time.Hour, maxAge/60)), nil // a row's time is by another clock, and before its event's
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
// only: the first time all of them, then those that it did not give before. It must not
// be called before all waits have ended.
func (d *Deliveries) Learn(ctx context.Context) iter.Seq2[deliveries.StoredEvent, error] {
	return func(yield func(deliveries.StoredEvent, error) bool) {
		token, err := d.lead(ctx)
		if err != nil {
			yield(deliveries.StoredEvent{}, err)
			return
		}
		if token < d.published.next { // the stream was made again
			d.published.next = 0
		}
		complete, err := d.replay(ctx, token, yield)
		if err != nil {
			yield(deliveries.StoredEvent{}, fmt.Errorf("sink: read deliveries: %w", err))
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
		last, err := d.read(ctx, leadership)
		if err != nil {
			return 0, err
		}
		m := &nats.Msg{Subject: leadership, Data: body, Header: nats.Header{"content-type": {"application/json"}}}
		bus.Fence(m.Header, leadership, last.Sequence)
		a, err := d.events.Publisher.Publish(ctx, m)
		if err == nil {
			return a.Sequence, nil
		}
		if bus.IsFinal(err) || try == leadTries || !retry.Pause(ctx, time.Duration(try-1)*retry.LeadStep) {
			return 0, fmt.Errorf("sink: become the active publisher: %w", err)
		}
	}
}

const leadTries = 10
