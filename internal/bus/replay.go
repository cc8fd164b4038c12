package bus

import (
	"context"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/poll"
	"errand/pkg/messages"
)

// replayWait is how long the next message may take while a stream is read; the
// server that gives them may be gone and must be replaced.
const replayWait = 15 * time.Second

// read gives the events in the stream up to the message at last, which is on turns;
// whole tells that all of them were taken. An ordered consumer reads headers only,
// and six times as fast as direct gets.
func (d *Deliveries) read(ctx context.Context, last uint64, yield func(poll.Told, error) bool) (whole bool, err error) {
	if d.told.next == last {
		d.told.next = last + 1
		return true, nil
	}
	cfg := jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{messages.Delivery.Subject("*", "*"), messages.Log.Subject(messages.Concluded, ">"), turns},
		HeadersOnly:    true,
	}
	return d.told.follow(ctx, d.js, cfg, last, func(m jetstream.Msg, meta *jetstream.MsgMetadata) bool {
		told, ok := toldBy(m, meta)
		return !ok || yield(told, nil)
	})
}

// toldBy reads the headers of an event; ok: it tells something of a row or a request.
func toldBy(m jetstream.Msg, meta *jetstream.MsgMetadata) (told poll.Told, ok bool) {
	id := m.Headers().Get(nats.MsgIdHdr)
	told.At, told.State, told.Note = meta.Timestamp, messages.StateOf(m.Subject()), m.Headers().Get(recipient)
	if _, told.Request, ok = strings.Cut(m.Subject(), "."+string(told.State)+"."); !ok {
		return told, false // a turn
	}
	switch told.State {
	case messages.Summary, messages.Concluded:
		told.Note = id
	case messages.Overdue:
	default:
		told.ID, ok = poll.ParseID(id)
	}
	return told, ok
}

// reader reads a stream bit by bit, and never anything twice.
type reader struct {
	stream string
	next   uint64    // sequence from which on nothing was read yet; 0: nothing was read
	at     time.Time // when what was read last was stored
	since  time.Time // what was read reaches back to; zero: everything
}

// follow gives the messages that were not read yet up to the one at last, which cfg
// lets through; whole tells that all of them were taken.
func (r *reader) follow(ctx context.Context, js jetstream.JetStream, cfg jetstream.OrderedConsumerConfig, last uint64, take func(jetstream.Msg, *jetstream.MsgMetadata) bool) (whole bool, err error) {
	if r.next > last {
		return true, nil
	}
	cfg.DeliverPolicy, cfg.InactiveThreshold = jetstream.DeliverAllPolicy, 10*time.Second
	switch {
	case r.next > 0:
		cfg.DeliverPolicy, cfg.OptStartSeq = jetstream.DeliverByStartSequencePolicy, r.next
	case !r.since.IsZero():
		// The message at last may be fresh: a time after it would begin to read behind it.
		from := earliest(r.since, time.Now().Add(-time.Hour))
		cfg.DeliverPolicy, cfg.OptStartTime = jetstream.DeliverByStartTimePolicy, &from
	}
	asking, cancel := context.WithTimeout(ctx, ackWait) // the server may go with the request in hand
	defer cancel()
	c, err := js.OrderedConsumer(asking, r.stream, cfg)
	if err != nil {
		return false, err
	}
	if info := c.CachedInfo(); r.next == 0 && info != nil && info.NumPending == 0 { // all is older
		r.next = last + 1
		return true, nil
	}
	// Without its server an ordered consumer is made anew after two missing heartbeats.
	it, err := c.Messages(jetstream.PullMaxMessages(4096), jetstream.PullExpiry(10*time.Second), jetstream.PullHeartbeat(time.Second))
	if err != nil {
		return false, err
	}
	defer it.Stop()
	for {
		m, err := nextWithin(ctx, it, replayWait)
		if err != nil {
			return false, err
		}
		meta, err := m.Metadata()
		if err != nil {
			return false, err
		}
		r.next, r.at = meta.Sequence.Stream+1, meta.Timestamp
		if !take(m, meta) {
			return false, nil
		}
		if meta.Sequence.Stream >= last {
			return true, nil
		}
	}
}

func nextWithin(ctx context.Context, it jetstream.MessagesContext, d time.Duration) (jetstream.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	return it.Next(jetstream.NextContext(ctx))
}

func earliest(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
