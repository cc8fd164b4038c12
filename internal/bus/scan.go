package bus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"errand/internal/wire"
)

// Scan reads what a stream has stored under a filter, page by page, and new messages as they are stored. It leaves
// nothing at the server, as a consumer would, and needs the right to $JS.API.DIRECT.GET.<stream> alone.
type Scan struct {
	Stream, Filter string
	From           uint64    // sequence that the next message has at least
	Since          time.Time // counts instead of From for the first message
	Page           int       // messages asked for at once; 0 means eachPage or allPage, where Each asks
}

// Next returns the next messages, none when there are none yet. A lagging replica's gaps come later. Errors: ErrNoStream.
func (s *Scan) Next(ctx context.Context, nc *nats.Conn) (page []Message, err error) {
	what := map[string]any{"next_by_subj": s.Filter, "batch": s.Page, "max_bytes": 4 << 20, "seq": max(s.From, 1)}
	if !s.Since.IsZero() {
		delete(what, "seq")
		what["start_time"] = s.Since
	}
	err = askMany(ctx, nc, api(nc, "DIRECT.GET."+s.Stream), what, s.Page+1, func(m *nats.Msg) (more bool, err error) {
		next, err := scanned(m)
		if next == nil {
			return false, noStream(s.Stream, err)
		}
		if len(page) > 0 {
			if last := page[len(page)-1].Sequence; added(m, "Nats-Last-Sequence") != strconv.FormatUint(last, 10) {
				return false, fmt.Errorf("nats: direct get from %s: a message after %d was lost on the way", s.Stream, last)
			}
		}
		page = append(page, *next)
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

// serverHeaders are those that the server adds to a message of a page.
var serverHeaders = []string{jetstream.StreamHeader, jetstream.SubjectHeader, jetstream.SequenceHeader, jetstream.TimeStampHeaer,
	"Nats-Num-Pending", "Nats-Last-Sequence"}

// scanned reads a message of a page, nil at its end; the headers that the server added are taken off.
func scanned(m *nats.Msg) (*Message, error) {
	got, err := messageIn(m)
	if got == nil {
		return nil, err
	}
	if got.Pending, err = strconv.ParseUint(added(m, "Nats-Num-Pending"), 10, 64); err != nil {
		return nil, fmt.Errorf("nats: direct get: %w", err)
	}
	got.Header = maps.Clone(m.Header)
	for _, name := range serverHeaders {
		delete(got.Header, name)
	}
	return got, nil
}

// How many messages are asked for at once: writes to the stream are answered behind a whole page, but under a filter each page
// has the server count what follows.
const (
	eachPage = 4096
	allPage  = 512 // under >
)

// Each calls visit with what the stream has from the scan's place on, until it returns false. Errors: see Next.
func (s Scan) Each(ctx context.Context, nc *nats.Conn, visit func(Message) bool) error {
	if s.Page == 0 {
		if s.Page = eachPage; s.Filter == ">" {
			s.Page = allPage
		}
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

// ToNewest puts the scan before the last n messages since its time; 0 means all. some: there may be one.
func (s *Scan) ToNewest(ctx context.Context, nc *nats.Conn, n int) (some bool, err error) {
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

// At returns the message of a stream with a sequence, if it is there and under a filter. Errors: ErrNoStream.
func At(ctx context.Context, nc *nats.Conn, stream, filter string, sequence uint64) (m Message, there bool, err error) {
	page, err := (&Scan{Stream: stream, Filter: filter, From: sequence, Page: 1}).Next(ctx, nc)
	if err != nil || len(page) == 0 || page[0].Sequence != sequence {
		return Message{}, false, err
	}
	return page[0], true, nil
}

// EachOf calls visit with all that a stream has under a filter of few subjects, a request's for example, in its order, until it
// returns false. It learns the subjects first: behind the last message under a wildcard the server would read to the end.
func EachOf(ctx context.Context, nc *nats.Conn, stream, filter string, visit func(Message) bool) error {
	subjects, err := subjectsOf(ctx, nc, stream, filter)
	if errors.Is(err, errManySubjects) {
		return eachBetween(ctx, nc, stream, filter, visit)
	}
	var all []Message
	for subject := range subjects {
		if err == nil {
			err = Scan{Stream: stream, Filter: subject}.Each(ctx, nc, func(m Message) bool { all = append(all, m); return true })
		}
	}
	slices.SortFunc(all, func(a, b Message) int { return cmp.Compare(a.Sequence, b.Sequence) })
	for i, m := range all {
		if m.Pending = uint64(len(all) - i - 1); err != nil || !visit(m) {
			break
		}
	}
	return err
}

// eachBetween is EachOf for many subjects, as of a message's batches. It asks for one after the other, up to the last.
func eachBetween(ctx context.Context, nc *nats.Conn, stream, filter string, visit func(Message) bool) error {
	last, err := direct(ctx, nc, stream, lastOf(filter))
	for from := uint64(1); err == nil && last != nil && from <= last.Sequence; {
		var m *Message
		m, err = direct(ctx, nc, stream, map[string]any{"next_by_subj": filter, "seq": from})
		if m == nil { // it was removed
			break
		}
		if m.Pending = last.Sequence - m.Sequence; !visit(*m) { // more than there are, and 0 for the last
			break
		}
		from = m.Sequence + 1
	}
	return noStream(stream, err)
}

var errManySubjects = errors.New("more subjects than the server names")

// subjectsOf asks any replica for the subjects under a filter. Errors: errManySubjects, ErrNoStream.
func subjectsOf(ctx context.Context, nc *nats.Conn, stream, filter string) (map[string]bool, error) {
	subjects := map[string]bool{}
	for from, more := uint64(1), true; more; {
		what := map[string]any{"multi_last": []string{filter}, "seq": from, "max_bytes": 4 << 20}
		err := askMany(ctx, nc, api(nc, "DIRECT.GET."+stream), what, maxSubjects+1, func(m *nats.Msg) (bool, error) {
			next, err := messageIn(m)
			if next == nil { // of an answer, or there is none
				more = statusOf(m) == "204" && added(m, "Nats-Num-Pending") != "0"
				return false, noStream(stream, err)
			}
			subjects[next.Subject], from = true, next.Sequence+1
			return true, nil
		})
		if err != nil {
			return nil, err
		}
	}
	return subjects, nil
}

// maxSubjects is how many subjects the server returns the last messages of.
const maxSubjects = 1024

// Wanted is a filter of which the newest messages are wanted.
type Wanted struct {
	Filter string
	Often  bool // much of what the stream has matches
}

// Newest calls take with what a stream has under filters since a time, until it took n of each, 0 for all, in no
// order; what is rare may be taken by the last message of each subject. It reads the stream backwards, and then asks the index of
// subjects for what is rare: the server would read the whole stream for it, and writes would wait. All since a time is read by each
// filter, unless it is rare. Errors: ErrNoStream.
func Newest(ctx context.Context, nc *nats.Conn, stream string, wanted []Wanted, since time.Time, n int,
	take func(int, Message) bool) error {
	first, err := (&Scan{Stream: stream, Filter: ">", Page: 1}).Next(ctx, nc)
	end := Scan{Stream: stream}
	if err == nil {
		err = end.ToEnd(ctx, nc)
	}
	if err != nil || len(first) == 0 {
		return err
	}
	took, indexed := make([]int, len(wanted)), make([]bool, len(wanted))
	done := func(i int) bool { return indexed[i] || n > 0 && took[i] >= n }
	if n == 0 && !since.IsZero() { // all are wanted: the newest are no better than others
		for i, w := range wanted {
			if indexed[i], err = allSince(ctx, nc, stream, w.Filter, end.From, since, func(m Message) { take(i, m) }); err != nil {
				return err
			}
		}
		if !slices.Contains(indexed, false) {
			return nil
		}
	}
	for pages, high := 1, end.From; high > first[0].Sequence; pages++ {
		low := max(high, first[0].Sequence+allPage) - allPage
		passed := false
		for page := (Scan{Stream: stream, Filter: ">", From: low, Page: allPage}); page.From < high; {
			part, err := page.Next(ctx, nc)
			if err != nil {
				return err
			}
			if len(part) == 0 {
				break
			}
			for _, m := range part {
				if m.Sequence >= high {
					break
				}
				if m.Time.Before(since) {
					passed = true
					continue
				}
				for i, w := range wanted {
					if !indexed[i] && wire.MatchSubject(w.Filter, m.Subject) && take(i, m) {
						took[i]++
					}
				}
			}
		}
		if high = low; passed {
			return nil
		}
		rest := 0
		for i, w := range wanted {
			if pages >= newestPages && !w.Often && !done(i) {
				if indexed[i], err = allSince(ctx, nc, stream, w.Filter, high, since, func(m Message) { take(i, m) }); err != nil {
					return err
				}
			}
			if !done(i) {
				rest++
			}
		}
		if rest == 0 {
			return nil
		}
	}
	return nil
}

const (
	newestPages = 32 // are read before the index is asked
	lastAtOnce  = 32 // subjects whose last message is asked for at once

	passedAtOnce = 100 // messages that the server passes while it would look one subject up
)

// allSince calls take with what a stream has under a filter before a sequence and since a time: with all of it, or with the last message of
// each subject where the server would have to pass too many others for that. false means that this user may not read the index.
func allSince(ctx context.Context, nc *nats.Conn, stream, filter string, before uint64, since time.Time, take func(Message)) (bool, error) {
	window, _, err := Count(ctx, nc, stream, ">", since)
	if err != nil {
		return true, err
	}
	matching, _, err := Count(ctx, nc, stream, filter, since)
	if err != nil || matching == 0 {
		return true, err
	}
	var has index
	if window >= passedAtOnce*matching {
		has, err = askIndex(ctx, nc, stream, filter)
	}
	if errors.Is(err, ErrNoStream) {
		return false, nil
	}
	if err == nil && window < passedAtOnce*max(matching, uint64(len(has.State.Subjects))) {
		err = Scan{Stream: stream, Filter: filter, Since: since}.Each(ctx, nc, func(m Message) bool {
			if m.Sequence < before {
				take(m)
			}
			return m.Sequence < before
		})
		return true, err
	}
	if err != nil {
		return true, err
	}
	var one sync.Mutex
	asked, ctx := errgroup.WithContext(ctx)
	asked.SetLimit(lastAtOnce)
	for subject := range has.State.Subjects {
		asked.Go(func() error {
			m, err := direct(ctx, nc, stream, lastOf(subject))
			if m != nil && m.Sequence < before && !m.Time.Before(since) {
				one.Lock()
				defer one.Unlock()
				take(*m)
			}
			return err
		})
	}
	return true, asked.Wait()
}
