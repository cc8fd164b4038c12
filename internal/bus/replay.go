package bus

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/retry"
	"errand/internal/wire"
	"errand/pkg/messages"
)

// Replay reads events in parts, and none twice, by ordered consumers: six times as fast as direct gets. Its user may set Next to 0, and
// all is read again.
type Replay struct {
	Operation   messages.Operation // whose stream it is
	Filters     []string           // none for all events
	HeadersOnly bool
	Since       time.Time // messages before it are not read; zero means that all are
	Next        uint64    // sequence of the first unread message; 0 before the first reading
	At          time.Time // when the last read message was stored
}

// UpTo calls take with the unread messages up to the one at last, which the filters let through, or, if loose, up to the last one
// before it that is there. It returns take's error.
func (r *Replay) UpTo(ctx context.Context, js jetstream.JetStream, last uint64, loose bool, take func(Message) error) error {
	if last == 0 || r.Next > last {
		return nil
	}
	cfg := jetstream.OrderedConsumerConfig{HeadersOnly: r.HeadersOnly, InactiveThreshold: 10 * time.Second}
	if r.Next > 0 || r.HeadersOnly { // or the server would count the bodies that wait under a lock, for minutes
		cfg.FilterSubjects = r.Filters
	}
	switch {
	case r.Next > 0:
		cfg.DeliverPolicy, cfg.OptStartSeq = jetstream.DeliverByStartSequencePolicy, r.Next
	case !r.Since.IsZero():
		// The message at last may be new: a time after it would start the reading behind it.
		from := slices.MinFunc([]time.Time{r.Since, time.Now().Add(-time.Hour)}, time.Time.Compare)
		cfg.DeliverPolicy, cfg.OptStartTime = jetstream.DeliverByStartTimePolicy, &from
	}
	opening, cancel := context.WithTimeout(ctx, retry.Answer) // the server may go while it is asked
	defer cancel()
	c, err := js.OrderedConsumer(opening, EventsOf(r.Operation), cfg)
	if err != nil {
		return fmt.Errorf("nats: read %s: %w", EventsOf(r.Operation), err)
	}
	if info := c.CachedInfo(); (r.Next == 0 || loose) && info != nil && info.NumPending == 0 { // all is older
		if !loose {
			r.Next = last + 1
		}
		return nil
	}
	// Without its server an ordered consumer is made again after two missing heartbeats.
	it, err := c.Messages(jetstream.PullMaxMessages(4096), jetstream.PullExpiry(10*time.Second), jetstream.PullHeartbeat(time.Second))
	if err != nil {
		return err
	}
	defer it.Stop()
	// The server that sends them may be gone and must be replaced.
	ctx, idle := context.WithCancelCause(ctx)
	defer idle(nil)
	timer := time.AfterFunc(retry.ReplayAnswer, func() { idle(context.DeadlineExceeded) })
	defer timer.Stop()
	for next := jetstream.NextContext(ctx); ; timer.Reset(retry.ReplayAnswer) {
		m, err := it.Next(next)
		if err != nil {
			return fmt.Errorf("nats: read %s: %w", EventsOf(r.Operation), cmp.Or(context.Cause(ctx), err))
		}
		meta, err := m.Metadata()
		if err != nil {
			return err
		}
		r.Next, r.At = meta.Sequence.Stream+1, meta.Timestamp
		wanted := func(filter string) bool { return wire.MatchSubject(filter, m.Subject()) }
		if len(r.Filters) == 0 || slices.ContainsFunc(r.Filters, wanted) {
			if err := take(Message{m.Subject(), meta.Sequence.Stream, meta.Timestamp, m.Headers(), m.Data(), meta.NumPending}); err != nil {
				return err
			}
		}
		if meta.Sequence.Stream >= last || loose && meta.NumPending == 0 {
			return nil
		}
	}
}
