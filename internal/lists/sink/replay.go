package sink

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/history"
	"errand/internal/retry"
	"errand/pkg/messages"
)

// replay yields the events in the stream up to the turn, or, of a standby, up to the last one; complete says that all were
// taken. An ordered consumer reads headers only, and six times as fast as direct gets.
func (s *Store) replay(ctx context.Context, yield func(Stored) bool) (complete bool, err error) {
	last := s.turn
	if last == 0 {
		info, err := s.info(ctx)
		if err != nil {
			return false, err
		}
		if last = info.State.LastSeq; last < *s.highest || last+1 < s.published.next {
			return false, s.reset()
		}
	}
	cfg := jetstream.OrderedConsumerConfig{FilterSubjects: append(slices.Clone(s.filters), s.turns), HeadersOnly: true}
	return s.published.follow(ctx, s.js, cfg, last, s.turn == 0, func(m jetstream.Msg, meta *jetstream.MsgMetadata) bool {
		if m.Subject() == s.turns {
			return true
		}
		return yield(Stored{m.Subject(), meta.Timestamp, m.Headers().Get(eventID), m.Headers().Get(recipient)})
	})
}

// reader reads a stream in parts, and nothing twice.
type reader struct {
	stream string
	next   uint64    // sequence of the first unread message; 0 before the first reading
	at     time.Time // when the last read message was stored
	since  time.Time // messages before it are not read; zero means that all are
}

// end asks the leader of an operation's stream for its last event under filters: the last of the stream's state may have been
// removed.
func (s *Store) end(ctx context.Context, op messages.Operation, filters ...string) (last history.Entry, err error) {
	ctx, cancel := context.WithTimeout(ctx, retry.Storage)
	defer cancel()
	for _, filter := range filters {
		one, err := s.events.Leader(ctx, op, filter)
		if err != nil {
			return last, fmt.Errorf("sink: %w", err)
		}
		if one.Sequence > last.Sequence {
			last = one
		}
	}
	return last, nil
}

// bodies calls take with the unread messages under filters, since a time and up to end; complete says that all were taken.
func (r *reader) bodies(ctx context.Context, js jetstream.JetStream, filters []string, end history.Entry, since time.Time,
	take func(jetstream.Msg, *jetstream.MsgMetadata) (more bool)) (complete bool, err error) {
	if end.Sequence+1 < r.next && end.At.After(r.at) { // the stream was made again
		r.next = 0
	}
	if r.next == 0 {
		r.since = since
	}
	if end.Sequence == 0 {
		return true, nil
	}
	complete, err = r.follow(ctx, js, jetstream.OrderedConsumerConfig{FilterSubjects: filters}, end.Sequence, false, take)
	if err != nil {
		err = fmt.Errorf("sink: read %s: %w", r.stream, err)
	}
	return complete, err
}

// follow calls take with the unread messages up to the one at last, which cfg lets through, or, if loose, up to the last one
// before it that is there; complete says that all were taken.
func (r *reader) follow(ctx context.Context, js jetstream.JetStream, cfg jetstream.OrderedConsumerConfig, last uint64, loose bool,
	take func(jetstream.Msg, *jetstream.MsgMetadata) (more bool)) (complete bool, err error) {
	if r.next > last {
		return true, nil
	}
	cfg.DeliverPolicy, cfg.InactiveThreshold = jetstream.DeliverAllPolicy, 10*time.Second
	filters := cfg.FilterSubjects
	if r.next == 0 && !cfg.HeadersOnly { // the server would count the bodies that wait under a lock, for minutes
		cfg.FilterSubjects = nil
	}
	switch {
	case r.next > 0:
		cfg.DeliverPolicy, cfg.OptStartSeq = jetstream.DeliverByStartSequencePolicy, r.next
	case !r.since.IsZero():
		// The message at last may be new: a time after it would start the reading behind it.
		from := slices.MinFunc([]time.Time{r.since, time.Now().Add(-time.Hour)}, time.Time.Compare)
		cfg.DeliverPolicy, cfg.OptStartTime = jetstream.DeliverByStartTimePolicy, &from
	}
	opening, cancel := context.WithTimeout(ctx, retry.Answer) // the server may go while it is asked
	defer cancel()
	c, err := js.OrderedConsumer(opening, r.stream, cfg)
	if err != nil {
		return false, err
	}
	if info := c.CachedInfo(); (r.next == 0 || loose) && info != nil && info.NumPending == 0 { // all is older
		if !loose {
			r.next = last + 1
		}
		return true, nil
	}
	// Without its server an ordered consumer is made again after two missing heartbeats.
	it, err := c.Messages(jetstream.PullMaxMessages(4096), jetstream.PullExpiry(10*time.Second), jetstream.PullHeartbeat(time.Second))
	if err != nil {
		return false, err
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
			return false, cmp.Or(context.Cause(ctx), err)
		}
		meta, err := m.Metadata()
		if err != nil {
			return false, err
		}
		r.next, r.at = meta.Sequence.Stream+1, meta.Timestamp
		wanted := func(filter string) bool { return messages.MatchSubject(filter, m.Subject()) }
		if (len(filters) == 0 || slices.ContainsFunc(filters, wanted)) && !take(m, meta) {
			return false, nil
		}
		if meta.Sequence.Stream >= last || loose && meta.NumPending == 0 {
			return true, nil
		}
	}
}
