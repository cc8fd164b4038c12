package bus

import (
	"context"
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
	if d.next == last {
		d.next = last + 1
		return true, nil
	}
	cfg := jetstream.OrderedConsumerConfig{
		FilterSubjects:    []string{messages.Delivery.Subject("*", "*"), turns},
		HeadersOnly:       true,
		DeliverPolicy:     jetstream.DeliverAllPolicy,
		InactiveThreshold: 10 * time.Second,
	}
	switch {
	case d.next > 0:
		cfg.DeliverPolicy, cfg.OptStartSeq = jetstream.DeliverByStartSequencePolicy, d.next
	case !d.since.IsZero():
		// The message at last is fresh: a time after it would begin to read behind it.
		from := earliest(d.since, time.Now().Add(-time.Hour))
		cfg.DeliverPolicy, cfg.OptStartTime = jetstream.DeliverByStartTimePolicy, &from
	}
	asking, cancel := context.WithTimeout(ctx, ackWait) // the server may go with the request in hand
	defer cancel()
	c, err := d.js.OrderedConsumer(asking, MailDeliveries, cfg)
	if err != nil {
		return false, err
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
		d.next = meta.Sequence.Stream + 1
		if id, ok := poll.ParseID(m.Headers().Get(nats.MsgIdHdr)); ok && !yield(poll.Told{ID: id, At: meta.Timestamp}, nil) {
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
