package bus

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/retry"
)

// Scan reads what a stream has stored under a filter, page by page, and new messages as
// they are stored. It leaves nothing at the server, as a consumer would, and needs the
// right to $JS.API.DIRECT.GET.<stream> alone.
type Scan struct {
	Stream, Filter string
	From           uint64    // sequence that the next message has at least
	Since          time.Time // counts instead of From for the first message
	Page           int       // messages asked for at once; 0: eachPage, where Each asks
}

// Message is what a stream has stored.
type Message struct {
	Subject  string
	Sequence uint64
	Time     time.Time
	Header   nats.Header
	Data     []byte
	Pending  uint64 // messages under the filter after this one
}

// Next gives the messages that come next, none when there are none yet. A replica that
// lags may answer: it gives what comes next later. ErrNoStream: nothing answers there.
func (s *Scan) Next(ctx context.Context, nc *nats.Conn) ([]Message, error) {
	what := map[string]any{"next_by_subj": s.Filter, "batch": s.Page, "max_bytes": 4 << 20}
	if s.Since.IsZero() {
		what["seq"] = max(s.From, 1)
	} else {
		what["start_time"] = s.Since
	}
	page, err := directPage(ctx, nc, s.Stream, what)
	if len(page) > 0 {
		s.From, s.Since = page[len(page)-1].Sequence+1, time.Time{}
	}
	return page, err
}

// eachPage is how many messages Each asks for at once.
const eachPage = 4096

// Each gives visit what the stream has from the scan's place on, until it returns false.
// Errors: those of Next.
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

// Newest puts the scan before the last n messages under its filter since its time, and has
// it ask for those alone; 0: for all. It reports whether there may be one.
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

// Any reports whether there is anything for Next: it is less to ask where there seldom is.
// Since does not count. ErrNoStream: nothing answers there.
func (s *Scan) Any(ctx context.Context, nc *nats.Conn) (bool, error) {
	next, err := direct(ctx, nc, s.Stream, map[string]any{"next_by_subj": s.Filter, "seq": max(s.From, 1)})
	return next != nil, noStream(s.Stream, err)
}

// ToEnd puts the scan behind everything that is stored.
func (s *Scan) ToEnd(ctx context.Context, nc *nats.Conn) error {
	last, err := direct(ctx, nc, s.Stream, lastOf(">"))
	if last != nil {
		s.From, s.Since = last.seq+1, time.Time{}
	}
	return noStream(s.Stream, err)
}

// ToLast puts the scan before the last n messages under its filter, or before all of
// them when there are fewer.
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

// ErrNoStream says that no stream of that name answers this user.
var ErrNoStream = errors.New("there is no such stream, or this user may not read it")

func noStream(stream string, err error) error {
	if errors.Is(err, nats.ErrNoResponders) {
		return fmt.Errorf("stream %s: %w", stream, ErrNoStream)
	}
	return err
}

// directPage asks any replica of a stream for some messages.
func directPage(ctx context.Context, nc *nats.Conn, stream string, what map[string]any) (page []Message, err error) {
	ctx, cancel := context.WithTimeout(ctx, retry.Answer)
	defer cancel()
	most, _ := what["batch"].(int)
	answers, end, err := answersTo(nc, "$JS.API.DIRECT.GET."+stream, what, most+1) // and the end of the page
	if err != nil {
		return nil, fmt.Errorf("nats: direct get: %w", err)
	}
	defer end()
	for {
		var m *nats.Msg
		select {
		case m = <-answers:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		switch status := statusOf(m); status {
		case "":
		case "204", "404": // the end of the page; there is none
			return page, nil
		case "503":
			return nil, noStream(stream, nats.ErrNoResponders)
		default:
			return nil, fmt.Errorf("nats: direct get from %s: status %s %s", stream, status, m.Header.Get("Description"))
		}
		next, err := messageOf(m)
		if err != nil {
			return nil, err
		}
		if last := uint64(0); len(page) > 0 {
			last = page[len(page)-1].Sequence
			if added(m, "Nats-Last-Sequence") != strconv.FormatUint(last, 10) {
				return nil, fmt.Errorf("nats: direct get from %s: a message after %d was lost on the way", stream, last)
			}
		}
		page = append(page, next)
	}
}

// messageOf reads a direct get's answer; the headers that the server added are taken off.
func messageOf(m *nats.Msg) (out Message, err error) {
	got, err := storedIn(m)
	if err != nil {
		return out, err
	}
	out = Message{Subject: got.subject, Sequence: got.seq, Time: got.at, Header: nats.Header{}, Data: got.data}
	if out.Pending, err = strconv.ParseUint(added(m, "Nats-Num-Pending"), 10, 64); err != nil {
		return out, fmt.Errorf("nats: direct get: %w", err)
	}
	for name, values := range m.Header {
		switch name {
		case jetstream.StreamHeader, jetstream.SubjectHeader, jetstream.SequenceHeader, jetstream.TimeStampHeaer, "Nats-Num-Pending", "Nats-Last-Sequence":
		default:
			out.Header[name] = values
		}
	}
	return out, nil
}

// Last gives the last message of a stream under a filter, as any replica has it; false:
// there is none. ErrNoStream: nothing answers there.
func Last(ctx context.Context, nc *nats.Conn, stream, filter string) (Message, bool, error) {
	got, err := direct(ctx, nc, stream, lastOf(filter))
	if err != nil || got == nil {
		return Message{}, false, noStream(stream, err)
	}
	return Message{Subject: got.subject, Sequence: got.seq, Time: got.at, Header: got.header, Data: got.data}, true, nil
}

// Count is how many messages a stream has under a filter since a time, and the first of
// them; 0: none. ErrNoStream: nothing answers there.
func Count(ctx context.Context, nc *nats.Conn, stream, filter string, since time.Time) (n uint64, first Message, err error) {
	page, err := (&Scan{Stream: stream, Filter: filter, Since: since, Page: 1}).Next(ctx, nc)
	if err != nil || len(page) == 0 {
		return 0, first, err
	}
	return page[0].Pending + 1, page[0], nil
}

// SubjectAt is the subject of the message with a sequence; "": it is there no more. A replica
// that does not have it may lag behind: then the leader is asked. ErrNoStream: nothing answers there.
func SubjectAt(ctx context.Context, nc *nats.Conn, stream string, sequence uint64) (string, error) {
	at := map[string]any{"seq": sequence}
	got, err := direct(ctx, nc, stream, at)
	if err == nil && got == nil {
		got, err = fromLeader(ctx, nc, stream, at)
	}
	if err != nil || got == nil {
		return "", noStream(stream, err)
	}
	return got.subject, nil
}
