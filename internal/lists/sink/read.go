package sink

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/history"
	"errand/internal/lists"
	"errand/internal/retry"
	"errand/pkg/messages"
)

// Learn yields what the headers of the events say, each only once: see lists.Store. It goes up to the turn or, of a standby, up to
// the last event. It must not be called before all waits have ended. sweep.ErrReset: the stream lost some of what it had.
//
// An ordered consumer reads headers only, and six times as fast as direct gets.
func (s *Store) Learn(ctx context.Context) iter.Seq2[lists.Stored, error] {
	return func(yield func(lists.Stored, error) bool) {
		last := s.turn
		if last == 0 {
			info, err := s.info(ctx)
			if err == nil && (info.State.LastSeq < *s.highest || info.State.LastSeq+1 < s.published.next) {
				err = s.reset()
			}
			if err != nil {
				yield(lists.Stored{}, err)
				return
			}
			last = info.State.LastSeq
		}
		cfg := jetstream.OrderedConsumerConfig{HeadersOnly: true}
		complete, err := s.published.follow(ctx, s.js, cfg, last, s.turn == 0, func(m jetstream.Msg, meta *jetstream.MsgMetadata) bool {
			return m.Subject() == s.turns || yield(lists.Stored{Subject: messages.ParseSubject(m.Subject()), At: meta.Timestamp,
				ID: m.Headers().Get(eventID), Recipient: m.Headers().Get(recipient)}, nil)
		})
		if err != nil {
			yield(lists.Stored{}, fmt.Errorf("sink: read what was published: %w", err))
		} else if complete {
			s.token = s.turn
		}
	}
}

// Requests yields the unread events of the list's sources, since a time: see lists.Store. It asks the streams' leaders for the
// last ones, from the last source on: so every outcome comes with the record of its call.
func (s *Store) Requests(ctx context.Context, since time.Time) iter.Seq2[history.Entry, error] {
	return func(yield func(history.Entry, error) bool) {
		ends := make([]history.Entry, len(s.requests))
		complete, err := true, error(nil)
		for i, r := range slices.Backward(s.requests) {
			if err == nil {
				ends[i], err = s.end(ctx, r.Operation, r.Filters...)
			}
		}
		for i, r := range s.requests {
			if complete && err == nil {
				complete, err = r.bodies(ctx, s.js, ends[i], since, func(m jetstream.Msg, meta *jetstream.MsgMetadata) bool {
					return yield(history.Entry{Subject: m.Subject(), Sequence: meta.Sequence.Stream, At: meta.Timestamp, Body: m.Data()}, nil)
				})
			}
		}
		if err != nil {
			yield(history.Entry{}, err)
		}
	}
}

// Resolve stores what became of a request over its uncertain event. One that another poller stored is as good.
func (s *Store) Resolve(ctx context.Context, e messages.Event, over uint64) error {
	ctx, cancel := context.WithTimeout(ctx, retry.Storage)
	defer cancel()
	_, err := s.events.Append(ctx, history.Record{Event: e, Last: over, Writer: s.writer})
	if err != nil && !errors.Is(err, history.ErrFenced) {
		return err
	}
	return nil
}

// reader reads a source in parts, and nothing twice.
type reader struct {
	Source
	next  uint64    // sequence of the first unread message; 0 before the first reading
	at    time.Time // when the last read message was stored
	since time.Time // messages before it are not read; zero means that all are
}

// end asks the leader of an operation's stream for its last event under filters: the last of the stream's state may have been
// removed.
func (s *Store) end(ctx context.Context, op messages.Operation, filters ...string) (last history.Entry, err error) {
	ctx, cancel := context.WithTimeout(ctx, retry.Storage)
	defer cancel()
	if len(filters) == 0 {
		filters = []string{"*.>"} // for ">" the server has nothing where its last message was removed
	}
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

// bodies calls take with the unread messages since a time and up to end; complete says that all were taken.
func (r *reader) bodies(ctx context.Context, js jetstream.JetStream, end history.Entry, since time.Time,
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
	complete, err = r.follow(ctx, js, jetstream.OrderedConsumerConfig{}, end.Sequence, false, take)
	if err != nil {
		err = fmt.Errorf("sink: read %s: %w", bus.EventsOf(r.Operation), err)
	}
	return complete, err
}

// follow calls take with the unread messages up to the one at last, which the filters let through, or, if loose, up to the last one
// before it that is there; complete says that all were taken.
func (r *reader) follow(ctx context.Context, js jetstream.JetStream, cfg jetstream.OrderedConsumerConfig, last uint64, loose bool,
	take func(jetstream.Msg, *jetstream.MsgMetadata) (more bool)) (complete bool, err error) {
	if r.next > last {
		return true, nil
	}
	cfg.DeliverPolicy, cfg.InactiveThreshold = jetstream.DeliverAllPolicy, 10*time.Second
	if r.next > 0 || cfg.HeadersOnly { // or the server would count the bodies that wait under a lock, for minutes
		cfg.FilterSubjects = r.Filters
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
	c, err := js.OrderedConsumer(opening, bus.EventsOf(r.Operation), cfg)
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
		if (len(r.Filters) == 0 || slices.ContainsFunc(r.Filters, wanted)) && !take(m, meta) {
			return false, nil
		}
		if meta.Sequence.Stream >= last || loose && meta.NumPending == 0 {
			return true, nil
		}
	}
}
