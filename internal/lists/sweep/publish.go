package sweep

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"errand/internal/failpoint"
)

// inFlight is how many pages are being stored at once: the next are read while one's acknowledgements are on their way.
const inFlight = 3

// publisher has rows published, each state once, beside other sweepers.
type publisher[T any] struct {
	sink    Sink[T]
	earlier func(Row[T]) []ID
	known   known
	horizon
	newest
	pages   []page[T] // being stored, oldest first
	pending map[uint64]struct{}
	learned int            // times that events of others were learned
	others  map[uint64]int // states that others published and that no page has shown yet, by when they were learned
	unproven
	tally
}

// horizon is how old rows are that are published.
type horizon struct {
	kept   time.Time // see Sink.Kept
	keptAt time.Time // when that was asked
	since  time.Time // rows made before are not published
}

// newest is how new the rows are that the list is known to show.
type newest struct {
	moved    time.Time // the newest row when it was seen first, at most as new as it was seen
	believed time.Time // a row that others published is believed to be as new as that at most
}

type tally struct {
	stored int  // events stored
	lost   bool // rows of a page could not be stored
}

type page[T any] struct {
	rows []Row[T]
	wait func() (int, error)
}

func newPublisher[T any](list List[T], sink Sink[T]) publisher[T] {
	return publisher[T]{sink: sink, earlier: list.Earlier, pending: map[uint64]struct{}{}, others: map[uint64]int{},
		unproven: unproven{from: map[uint64]int{}}}
}

// take returns a page's unpublished rows, in its room. A row dated in the future does not show that the list goes on.
func (p *publisher[T]) take(rows []Row[T]) (unknown []Row[T]) {
	now := time.Now()
	for _, row := range rows {
		known := p.known.has(row.ID)
		switch {
		case known && !row.At.After(p.believed):
			p.moved = later(p.moved, row.At)
		case !known && earlier(row.At, now).After(p.moved) && !p.changed(row):
			p.moved = earlier(row.At, now)
		}
	}
	return p.unknown(rows)
}

// unknown returns the rows whose states were not published, in the room of all.
func (p *publisher[T]) unknown(rows []Row[T]) []Row[T] {
	now, unknown := time.Now(), rows[:0]
	for _, row := range rows {
		if _, twice := p.pending[row.ID.short()]; twice {
			continue
		}
		switch {
		case p.known.has(row.ID):
			delete(p.others, row.ID.short())
		case !row.At.IsZero() && row.At.Before(p.since):
			continue
		case !row.At.IsZero() && row.At.Before(p.kept) && !p.watched(row): // it has aged out
			if !row.Final { // but its next state has not
				p.known.add(row.ID, now)
			}
		default:
			unknown = append(unknown, row)
			p.pending[row.ID.short()] = struct{}{}
		}
		if row.At.IsZero() || now.Sub(row.At) < watchOpen {
			p.known.watch(row.Key, row.Final, now)
		}
	}
	clear(rows[len(unknown):])
	return unknown
}

// watched reports whether another state of the row was seen or published.
func (p *publisher[T]) watched(row Row[T]) bool {
	_, open := p.known.open[row.Key]
	return open || p.changed(row)
}

// changed reports whether another state of the row was published.
func (p *publisher[T]) changed(row Row[T]) bool {
	return slices.ContainsFunc(p.earlier(row), p.known.has)
}

// publish begins to store rows, which unknown has returned.
func (p *publisher[T]) publish(ctx context.Context, rows []Row[T]) error {
	if len(rows) == 0 {
		return nil
	}
	p.begin(ctx, rows)
	return p.collect(ctx, inFlight-1)
}

func (p *publisher[T]) begin(ctx context.Context, rows []Row[T]) {
	failpoint.Here(failpoint.BeforePublish)
	// When ctx ends, the events under way are waited for: they would have to be learned again.
	p.pages = append(p.pages, page[T]{rows, p.sink.Publish(context.WithoutCancel(ctx), rows)})
}

// collect waits until at most so many pages are being stored. What failed is published again, after others' was learned.
func (p *publisher[T]) collect(ctx context.Context, most int) error {
	for try := 1; ; try++ {
		rest, err := p.settle(most)
		if err == nil && len(rest) == 0 {
			return nil
		}
		if err := p.relearn(ctx, err, try); err != nil {
			p.lost = p.lost || len(rest) > 0
			return err
		}
		if rest = p.unknown(rest); len(rest) > 0 {
			p.begin(ctx, rest)
		}
		most = 0
	}
}

// settle waits until at most so many pages are being stored, none after an error.
func (p *publisher[T]) settle(most int) (rest []Row[T], err error) {
	for len(p.pages) > most {
		page := p.pages[0]
		p.pages = p.pages[1:]
		n, failed := page.wait()
		failpoint.Here(failpoint.AfterPublish)
		for i, row := range page.rows {
			delete(p.pending, row.ID.short())
			if i < n {
				p.known.add(row.ID, time.Now())
				p.doubt(row.ID)
			}
		}
		p.stored += n
		rest = append(rest, page.rows[n:]...)
		if failed != nil {
			most = 0
			if err == nil || !errors.Is(failed, ErrBehind) {
				err = failed
			}
		}
	}
	return rest, err
}

// unproven is states that count as new though they are known, extra or of a failed sweep: rows behind them may be unknown.
type unproven struct {
	from      map[uint64]int // the sweep from which on one does
	number    int            // of the sweep that is under way, or was the last
	extraRows bool           // extra rows are being stored
}

// doubt notes a state that was stored. It counts at once, or in the next sweep if this one fails.
func (u *unproven) doubt(id ID) {
	if u.from[id.short()] = u.number + 1; u.extraRows {
		u.from[id.short()] = u.number
	}
}

// isUnproven reports whether a state that a page shows counts as new.
func (u *unproven) isUnproven(id ID) bool {
	from, ok := u.from[id.short()]
	return ok && from <= u.number
}

// prove forgets, after a sweep that came through, all but what was published from extra rows meanwhile.
func (u *unproven) prove() {
	maps.DeleteFunc(u.from, func(_ uint64, from int) bool { return from != u.number })
}
