package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
)

// event is a message to show: an event or a dead letter.
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
		return e.subject, event{subject: rest, header: nats.Header{nats.MsgIdHdr: {e.header.Get(bus.HeaderRequestID)}}}.requestID()
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
	since time.Time
	last  uint64
}

// follower reads the messages of streams that match some patterns, stored ones and new
// ones. It only reads: a subscription would also get events that the server then refused.
type follower struct {
	b       broker
	sources []*source
}

// source reads what one stream has under one pattern.
type source struct {
	scan    bus.Scan
	earlier []string // patterns of the same stream; what one of them matches is shown by its source
	page    []bus.Message
	empty   int    // answers in a row that had no messages
	past    uint64 // messages from before the start that were not read yet
	head    event  // the next one of them
}

// pageSize is how many messages a source asks for at once.
const pageSize = 256

// follow starts reading: from then on no message is missed.
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
	return nil, fmt.Errorf("no stream of events has %s: check the pattern. Requests themselves are not shown", strings.Join(patterns, " or "))
}

// sources are one for each stream of events and each pattern that something in it may match.
func sources(patterns []string) (list []*source) {
	for _, stream := range bus.Streams(bus.Limits{}) {
		var earlier []string
		for _, pattern := range patterns {
			if stream.Retention != jetstream.LimitsPolicy || !slices.ContainsFunc(stream.Subjects, func(s string) bool { return overlap(pattern, s) }) {
				continue
			}
			list = append(list, &source{scan: bus.Scan{Stream: stream.Name, Filter: pattern, Page: pageSize}, earlier: slices.Clone(earlier)})
			earlier = append(earlier, pattern)
		}
	}
	return list
}

// overlap reports whether a subject can match both patterns.
func overlap(one, other string) bool {
	a, b := strings.Split(one, "."), strings.Split(other, ".")
	for i := 0; i < len(a) && i < len(b); i++ {
		switch {
		case a[i] == ">" || b[i] == ">":
			return true
		case a[i] != b[i] && a[i] != "*" && b[i] != "*":
			return false
		}
	}
	return len(a) == len(b)
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
