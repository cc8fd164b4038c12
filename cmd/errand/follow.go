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
	"errand/internal/retry"
	"errand/internal/wire"
	"errand/pkg/messages"
)

// split returns the subject of an event or a dead letter without the id, and the id, with a batch's number if it has one.
func split(e bus.Message) (kind, id string) {
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
}

// pageSize is how many messages a source requests at once.
const pageSize = 256

// follow starts reading since a time, or with new messages; no later message is missed.
func follow(ctx context.Context, b broker, patterns []string, since time.Time) (*follower, error) {
	f := &follower{b: b}
	var missing error
	for _, s := range sources(patterns) {
		err := s.open(ctx, b, since)
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
			overlaps := func(subject string) bool { return wire.PatternsOverlap(pattern, subject) }
			if stream.Retention != jetstream.LimitsPolicy || stream.Name == bus.Keys || !slices.ContainsFunc(stream.Subjects, overlaps) {
				continue
			}
			list = append(list, &source{scan: bus.Scan{Stream: stream.Name, Filter: pattern, Page: pageSize}, earlier: slices.Clone(earlier)})
			earlier = append(earlier, pattern)
		}
	}
	return list
}

func (s *source) open(ctx context.Context, b broker, since time.Time) (err error) {
	if since.IsZero() {
		return s.scan.ToEnd(ctx, b.Conn)
	}
	s.scan.Since = since
	s.page, err = s.scan.Next(ctx, b.Conn)
	return err
}

// run shows stored events in order of time, then new ones until ctx ends, which is not an error.
func (f *follower) run(ctx context.Context, show func(bus.Message)) error {
	err := f.news(ctx, show)
	for err == nil && retry.Pause(ctx, retry.Follow) {
		err = f.news(ctx, show)
	}
	return ended(ctx, err)
}

// news shows what was stored until now and is not shown yet, of all streams together in the order of time. What arrives meanwhile waits
// for the next call, so that each stream keeps its order. It waits while no server answers, which the connection reports.
func (f *follower) news(ctx context.Context, show func(bus.Message)) (err error) {
	ends := map[string]uint64{}
	for _, s := range f.sources {
		end := bus.Scan{Stream: s.scan.Stream}
		if _, known := ends[end.Stream]; known {
			continue
		}
		for end.ToEnd(ctx, f.b.Conn) != nil && retry.Pause(ctx, retry.Follow) {
		}
		ends[end.Stream] = end.From
	}
	for left := slices.Clone(f.sources); ; {
		left = slices.DeleteFunc(left, func(s *source) bool { return !s.fill(ctx, f.b, ends[s.scan.Stream]) })
		if len(left) == 0 || ctx.Err() != nil {
			return ctx.Err()
		}
		first := slices.MinFunc(left, func(a, b *source) int { return a.page[0].Time.Compare(b.page[0].Time) })
		e := first.page[0]
		first.page = first.page[1:]
		if !slices.ContainsFunc(first.earlier, func(pattern string) bool { return wire.MatchSubject(pattern, e.Subject) }) {
			show(e)
		}
	}
}

// fill reads the next page once the one before is shown, and reports whether there is anything before a sequence.
func (s *source) fill(ctx context.Context, b broker, end uint64) bool {
	for len(s.page) == 0 && s.scan.From < end {
		page, err := s.scan.Next(ctx, b.Conn)
		if s.page = page; err == nil || !retry.Pause(ctx, retry.Follow) {
			break
		}
	}
	return len(s.page) > 0 && s.page[0].Sequence < end
}

// ended returns err unless it only says that ctx ended.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) {
		return nil
	}
	return err
}
