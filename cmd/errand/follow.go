package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// event is a message to show: an event, a request or a dead letter.
type event struct {
	at      time.Time
	subject string
	header  nats.Header
	data    []byte
}

// split returns the subject without the id, and the id. The id of a request is not in its
// subject but in the body or the header, if it has one.
func (e event) split() (kind, id string) {
	tokens := strings.SplitN(e.subject, ".", 4)
	if dead, rest, _ := strings.Cut(e.subject, "."); dead == "dead" {
		return e.subject, event{subject: rest, header: nats.Header{nats.MsgIdHdr: {e.header.Get("Errand-Request-Id")}}}.requestID()
	}
	if len(tokens) == 4 {
		return strings.Join(tokens[:3], "."), tokens[3]
	}
	return e.subject, e.requestID()
}

func (e event) requestID() string {
	var body struct {
		RequestID string `json:"request_id"`
	}
	if json.Unmarshal(e.data, &body) == nil && body.RequestID != "" {
		return body.RequestID
	}
	return e.header.Get(nats.MsgIdHdr)
}

// startAt says which stored events are shown first.
type startAt struct {
	since time.Duration
	last  uint64
}

// follower reads new messages that match some patterns. For requests it subscribes to the
// subjects, since their streams are for the programs alone. Everything else is read from
// the streams: a subscription would also get events that the server then refused.
type follower struct {
	b       broker
	sources []*source
	subs    []*nats.Subscription
	live    chan event
	done    chan struct{} // closed by stop
}

// source reads one stream.
type source struct {
	stream   string
	filters  []string
	messages jetstream.MessagesContext
	past     uint64 // messages from before the start that were not read yet
	head     event  // the next one of them
}

// follow starts reading: from then on no message is missed. End it with stop.
func follow(ctx context.Context, b broker, patterns []string, from startAt) (*follower, error) {
	f := &follower{b: b, live: make(chan event, 256), done: make(chan struct{})}
	filters, found, err := f.streams(ctx, patterns)
	if err == nil && !found {
		err = fmt.Errorf("no stream has %s: run `errand provision` first, or check the pattern", strings.Join(patterns, " or "))
	}
	for _, op := range requests {
		if err == nil && slices.ContainsFunc(patterns, func(p string) bool { return matches(p, op.Requested()) }) {
			err = f.listen(op.Requested())
		}
	}
	for _, stream := range slices.Sorted(maps.Keys(filters)) {
		if err == nil {
			err = f.open(ctx, &source{stream: stream, filters: filters[stream]}, from)
		}
	}
	if err == nil {
		err = b.nc.FlushTimeout(connectWait) // until the server has the subscriptions
	}
	if err != nil {
		f.stop()
		return nil, err
	}
	return f, nil
}

// streams finds the streams that can be read, and the patterns for each.
func (f *follower) streams(ctx context.Context, patterns []string) (filters map[string][]string, found bool, err error) {
	filters = map[string][]string{}
	for _, pattern := range patterns {
		list := f.b.js.StreamNames(ctx, jetstream.WithStreamListSubject(pattern))
		for name := range list.Name() {
			found = true
			s, err := f.b.js.Stream(ctx, name)
			if err != nil {
				return nil, found, fmt.Errorf("stream %s: %w", name, err)
			}
			if s.CachedInfo().Config.Retention == jetstream.LimitsPolicy {
				filters[name] = append(filters[name], pattern)
			}
		}
		if err := list.Err(); err != nil {
			return nil, found, fmt.Errorf("list the streams: %w", err)
		}
	}
	return filters, found, nil
}

func (f *follower) listen(subject string) error {
	s, err := f.b.nc.Subscribe(subject, func(m *nats.Msg) {
		select {
		case f.live <- event{at: time.Now(), subject: m.Subject, header: m.Header, data: m.Data}:
		case <-f.done:
		}
	})
	if err != nil {
		return fmt.Errorf("listen to %s: %w", subject, err)
	}
	f.subs = append(f.subs, s)
	return nil
}

func (f *follower) open(ctx context.Context, s *source, from startAt) error {
	config := jetstream.OrderedConsumerConfig{FilterSubjects: s.filters, DeliverPolicy: jetstream.DeliverNewPolicy, InactiveThreshold: time.Minute}
	switch {
	case from.since > 0:
		since := time.Now().Add(-from.since)
		config.DeliverPolicy, config.OptStartTime = jetstream.DeliverByStartTimePolicy, &since
	case from.last > 0:
		start, err := f.lastOf(ctx, s, from.last)
		if err != nil {
			return err
		}
		config.DeliverPolicy, config.OptStartSeq = jetstream.DeliverByStartSequencePolicy, start
	}
	c, err := f.b.js.OrderedConsumer(ctx, s.stream, config)
	if err != nil {
		return fmt.Errorf("read stream %s: %w", s.stream, err)
	}
	if config.DeliverPolicy != jetstream.DeliverNewPolicy {
		s.past = c.CachedInfo().NumPending
	}
	if s.messages, err = c.Messages(); err != nil {
		return fmt.Errorf("read stream %s: %w", s.stream, err)
	}
	f.sources = append(f.sources, s)
	return nil
}

// lastOf is the sequence from which a stream has the last n messages that match the
// filters, or all if there are fewer. The server reports how many there are from a
// sequence on, so a binary search finds it.
func (f *follower) lastOf(ctx context.Context, s *source, n uint64) (uint64, error) {
	stream, err := f.b.js.Stream(ctx, s.stream)
	if err != nil {
		return 0, fmt.Errorf("stream %s: %w", s.stream, err)
	}
	low, high := stream.CachedInfo().State.FirstSeq, stream.CachedInfo().State.LastSeq+1
	for low < high { // there are fewer than n after high
		middle := low + (high-low+1)/2
		c, err := f.b.js.OrderedConsumer(ctx, s.stream, jetstream.OrderedConsumerConfig{FilterSubjects: s.filters, HeadersOnly: true,
			DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: middle, InactiveThreshold: 5 * time.Second})
		if err != nil {
			return 0, fmt.Errorf("read stream %s: %w", s.stream, err)
		}
		info := c.CachedInfo()
		_ = f.b.js.DeleteConsumer(ctx, s.stream, info.Name) // otherwise the server removes it later
		if info.NumPending >= n {
			low = middle
		} else {
			high = middle - 1
		}
	}
	return max(low, 1), nil
}
