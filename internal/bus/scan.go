package bus

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/retry"
)

// Scan reads what a stream has stored under a filter, page by page, and new messages as they are stored. It leaves
// nothing at the server, as a consumer would, and needs the right to $JS.API.DIRECT.GET.<stream> alone.
type Scan struct {
	Stream, Filter string
	From           uint64    // sequence that the next message has at least
	Since          time.Time // counts instead of From for the first message
	Page           int       // messages asked for at once; 0 means eachPage, where Each asks
}

// Next returns the next messages, none when there are none yet. A lagging replica's gaps come later. Errors: ErrNoStream.
func (s *Scan) Next(ctx context.Context, nc *nats.Conn) (page []Message, err error) {
	ctx, cancel := context.WithTimeout(ctx, retry.Answer)
	defer cancel()
	what := map[string]any{"next_by_subj": s.Filter, "batch": s.Page, "max_bytes": 4 << 20, "seq": max(s.From, 1)}
	if !s.Since.IsZero() {
		delete(what, "seq")
		what["start_time"] = s.Since
	}
	err = askMany(ctx, nc, "$JS.API.DIRECT.GET."+s.Stream, what, s.Page+1, func(m *nats.Msg) (more bool, err error) {
		switch status := statusOf(m); status {
		case "":
		case "204", "404": // the end of the page; there is none
			return false, nil
		case "503":
			return false, noStream(s.Stream, nats.ErrNoResponders)
		default:
			return false, fmt.Errorf("nats: direct get from %s: status %s %s", s.Stream, status, m.Header.Get("Description"))
		}
		next, err := scanned(m)
		if err != nil {
			return false, err
		}
		if len(page) > 0 {
			if last := page[len(page)-1].Sequence; added(m, "Nats-Last-Sequence") != strconv.FormatUint(last, 10) {
				return false, fmt.Errorf("nats: direct get from %s: a message after %d was lost on the way", s.Stream, last)
			}
		}
		page = append(page, next)
		return true, nil
	})
	if err != nil {
		return nil, err
	}
	if len(page) > 0 {
		s.From, s.Since = page[len(page)-1].Sequence+1, time.Time{}
	}
	return page, nil
}

// scanned reads a message of a page; the headers that the server added are taken off.
func scanned(m *nats.Msg) (Message, error) {
	got, err := messageIn(m)
	if err != nil {
		return Message{}, err
	}
	if got.Pending, err = strconv.ParseUint(added(m, "Nats-Num-Pending"), 10, 64); err != nil {
		return Message{}, fmt.Errorf("nats: direct get: %w", err)
	}
	got.Header = nats.Header{}
	for name, values := range m.Header {
		switch name {
		case jetstream.StreamHeader, jetstream.SubjectHeader, jetstream.SequenceHeader, jetstream.TimeStampHeaer,
			"Nats-Num-Pending", "Nats-Last-Sequence":
		default:
			got.Header[name] = values
		}
	}
	return *got, nil
}

const eachPage = 4096

// Each calls visit with what the stream has from the scan's place on, until it returns false. Errors: see Next.
func (s Scan) Each(ctx context.Context, nc *nats.Conn, visit func(Message) bool) error {
	if s.Page == 0 {
		s.Page = eachPage
	}
	for {
		page, err := s.Next(ctx, nc)
		if err != nil {
			return err
		}
		for _, m := range page {
			if !visit(m) {
				return nil
			}
		}
		if len(page) == 0 || page[len(page)-1].Pending == 0 {
			return nil
		}
	}
}

// Newest puts the scan before the last n messages since its time; 0 means all. some: there may be one.
func (s *Scan) Newest(ctx context.Context, nc *nats.Conn, n int) (some bool, err error) {
	if n == 0 {
		return true, nil
	}
	have, _, err := Count(ctx, nc, s.Stream, s.Filter, s.Since)
	if err != nil || have == 0 {
		return false, err
	}
	if s.Page = n; have > uint64(n) {
		err = s.ToLast(ctx, nc, uint64(n))
	}
	return true, err
}

// Any reports whether there is anything for Next, which costs less where there seldom is. It ignores Since. Errors: see Next.
func (s *Scan) Any(ctx context.Context, nc *nats.Conn) (bool, error) {
	next, err := direct(ctx, nc, s.Stream, map[string]any{"next_by_subj": s.Filter, "seq": max(s.From, 1)})
	return next != nil, noStream(s.Stream, err)
}

// ToEnd puts the scan behind everything that is stored.
func (s *Scan) ToEnd(ctx context.Context, nc *nats.Conn) error {
	last, err := direct(ctx, nc, s.Stream, lastOf(">"))
	if last != nil {
		s.From, s.Since = last.Sequence+1, time.Time{}
	}
	return noStream(s.Stream, err)
}

// ToLast puts the scan before the last n messages under its filter, or before all when there are fewer.
func (s *Scan) ToLast(ctx context.Context, nc *nats.Conn, n uint64) error {
	if err := s.ToEnd(ctx, nc); err != nil {
		return err
	}
	low, high := uint64(1), max(s.From, 1)
	for low < high { // there are fewer than n after high
		middle := low + (high-low+1)/2
		first := Scan{Stream: s.Stream, Filter: s.Filter, From: middle, Page: 1}
		page, err := first.Next(ctx, nc)
		if err != nil {
			return err
		}
		if len(page) > 0 && page[0].Pending+1 >= n {
			low = middle
		} else {
			high = middle - 1
		}
	}
	s.From = low
	return nil
}

// Count is how many messages a stream has under a filter since a time, and the first of them. Errors: ErrNoStream.
func Count(ctx context.Context, nc *nats.Conn, stream, filter string, since time.Time) (n uint64, first Message, err error) {
	page, err := (&Scan{Stream: stream, Filter: filter, Since: since, Page: 1}).Next(ctx, nc)
	if err != nil || len(page) == 0 {
		return 0, first, err
	}
	return page[0].Pending + 1, page[0], nil
}
