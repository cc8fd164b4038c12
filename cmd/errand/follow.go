package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/pkg/messages"
)

// event is an event or a dead letter to show.
type event bus.Message

// split returns the subject without the id, and the id, with a batch's number if it has one.
func (e event) split() (kind, id string) {
	s := messages.ParseSubject(e.Subject)
	switch {
	case s.Dead:
		return e.Subject, e.Header.Get(bus.HeaderRequestID)
	case s.ID == "":
		return e.Subject, ""
	}
	kind = s.Operation.Subject(s.State, "")
	return kind, e.Subject[len(kind)+1:]
}

type startAt struct {
	since time.Time
	last  uint64
}

// follower reads the stored and new messages that match some patterns. It reads streams, as a subscription would also get
// events that the server then refuses.
type follower struct {
	b       broker
	sources []*source
}

// source reads what matches one pattern in one stream.
type source struct {
	scan    bus.Scan
	earlier []string // patterns of earlier sources of the stream; they show what matches
	page    []bus.Message
	past    uint64 // stored messages still to be shown
}

// pageSize is how many messages a source requests at once.
const pageSize = 256

// follow starts reading; no later message is missed.
func follow(ctx context.Context, b broker, patterns []string, from startAt) (*follower, error) {
	f := &follower{b: b}
	var missing error
	for _, s := range sources(patterns) {
		err := s.open(ctx, b, from)
		switch {
		case errors.Is(err, bus.ErrNoStream):
			missing = err
		case err != nil:
			return nil, err
		default:
			f.sources = append(f.sources, s)
		}
	}
	switch {
	case len(f.sources) > 0:
		return f, nil
	case missing != nil:
		return nil, unreadable(missing)
	}
	return nil, fmt.Errorf("no stream of events has %s: check the pattern. Requests are not shown", strings.Join(patterns, " or "))
}

// sources returns one source for each stream of events and each pattern that may match in it.
func sources(patterns []string) (list []*source) {
	for _, stream := range bus.Streams(bus.Limits{}) {
		var earlier []string
		for _, pattern := range patterns {
			overlaps := func(subject string) bool { return messages.PatternsOverlap(pattern, subject) }
			if stream.Retention != jetstream.LimitsPolicy || stream.Name == bus.Keys || !slices.ContainsFunc(stream.Subjects, overlaps) {
				continue
			}
			list = append(list, &source{scan: bus.Scan{Stream: stream.Name, Filter: pattern, Page: pageSize}, earlier: slices.Clone(earlier)})
			earlier = append(earlier, pattern)
		}
	}
	return list
}

func (s *source) open(ctx context.Context, b broker, from startAt) error {
	var err error
	switch {
	case !from.since.IsZero():
		s.scan.Since = from.since
	case from.last > 0:
		err = s.scan.ToLast(ctx, b.nc, from.last)
	default:
		return s.scan.ToEnd(ctx, b.nc)
	}
	if err == nil {
		s.page, err = s.scan.Next(ctx, b.nc)
	}
	if len(s.page) > 0 {
		s.past = s.page[0].Pending + 1
	}
	return err
}
