package sweep

import (
	"context"
	"errors"
	"slices"
	"time"

	"errand/internal/failpoint"
)

// inFlight is how many pages are being stored at once: the next pages are read and
// written while the acknowledgements of one are on their way.
const inFlight = 3

// publisher has rows published, each state once, whoever else publishes.
type publisher[T any] struct {
	sink    Sink[T]
	earlier func(Row[T]) []ID
	known   known
	horizon
	watch
	pages   []page[T]           // being stored, oldest first
	pending map[uint64]int      // and the value of linked when a page showed it
	others  map[uint64]struct{} // states that others published and that no page has shown yet
	unproven
	tally
}

// horizon is how old rows are that are published.
type horizon struct {
	kept   time.Time // see Sink.Kept
	keptAt time.Time // when that was asked
	since  time.Time // rows made before are not published
}

// watch is what shows that the list was watched without a gap, and that it goes on.
type watch struct {
	fresh    map[uint64]int64    // became known since the last link, and when in nanoseconds since 1970
	old      map[uint64]struct{} // some states that are too old to be published
	linked   int                 // pages that showed a row that was known before
	learned  int                 // times that events of others were learned
	believed time.Time           // a row that was known at the start is believed to be as new as that at most
	moved    time.Time           // the newest row when it was seen first, at most as new as it was seen
}

// tally is what came of publishing.
type tally struct {
	stored int  // events stored
	grown  int  // rows that were seen first in this sweep, whoever published them; our own only where debt counts
	lost   bool // rows of a page could not be stored
	debt   debt
}

// page is a page's rows that are being stored.
type page[T any] struct {
	rows []Row[T]
	at   time.Time // when that began
	wait func() (int, error)
}

func newPublisher[T any](list List[T], sink Sink[T]) publisher[T] {
	return publisher[T]{sink: sink, earlier: list.Earlier, pending: map[uint64]int{}, others: map[uint64]struct{}{},
		unproven: unproven{from: map[uint64]int{}}, watch: watch{fresh: map[uint64]int64{}, old: map[uint64]struct{}{}}}
}

// maxOld is the maximum number of states to remember that are too old to be published.
// They show only that a list is watched in which nothing is new.
const maxOld = 1000

// take returns the rows of a page whose states were not published, in its room. met reports whether it
// links to what was seen before: it shows a row that was known before, so what came
// between was there to be seen. Rows that were seen since the last link prove nothing, and
// learned is that of when the page was asked for: events that were learned later may be about
// rows that it cannot show.
func (p *publisher[T]) take(rows []Row[T], learned int) (unknown []Row[T], met bool) {
	now := time.Now()
	for _, row := range rows {
		since, fresh := p.fresh[row.ID.short()]
		_, old := p.old[row.ID.short()]
		if !fresh && (old || p.known.has(row.ID)) {
			met = true
			if !row.At.After(p.believed) {
				p.moved = later(p.moved, row.At)
			}
			continue
		}
		first := now
		if fresh {
			first = time.Unix(0, since)
		}
		if first = earlier(row.At, first); first.After(p.moved) && !p.changed(row) {
			p.moved = first
		}
	}
	unknown = p.unknown(rows, now)
	if met {
		p.linked++
		if learned == p.learned {
			clear(p.fresh)
		}
	}
	return unknown, met
}

// unknown returns the rows whose states were not published, in the room of all.
func (p *publisher[T]) unknown(rows []Row[T], at time.Time) []Row[T] {
	now, unknown := time.Now(), rows[:0]
	for _, row := range rows {
		if _, twice := p.pending[row.ID.short()]; twice {
			continue
		}
		switch {
		case p.known.has(row.ID):
			p.shown(row)
		case !row.At.IsZero() && row.At.Before(p.since):
			p.skip(row.ID, at)
			continue
		case !row.At.IsZero() && row.At.Before(p.kept) && !p.watched(row): // it has aged out
			if row.Final {
				p.skip(row.ID, at)
			} else { // but its next state has not
				p.known.add(row.ID, now)
				p.fresh[row.ID.short()] = at.UnixNano()
			}
		default:
			unknown = append(unknown, row)
			p.pending[row.ID.short()] = p.linked
		}
		if row.At.IsZero() || now.Sub(row.At) < watchOpen {
			p.known.watch(row.Key, row.Final, now)
		}
	}
	clear(rows[len(unknown):])
	return unknown
}

// skip remembers a state that is too old to be published.
func (p *publisher[T]) skip(id ID, at time.Time) {
	if _, ok := p.old[id.short()]; !ok && len(p.old) < maxOld {
		p.old[id.short()] = struct{}{}
		p.fresh[id.short()] = at.UnixNano()
	}
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

// shown counts a row that another sweeper has published when a page shows it first.
func (p *publisher[T]) shown(row Row[T]) {
	if _, ok := p.others[row.ID.short()]; !ok {
		return
	}
	delete(p.others, row.ID.short())
	if p.first(row) {
		p.grown++
	}
}

// first reports whether no page has shown the row in an earlier state: what is known of those
// was published by others. They count as shown from now on.
func (p *publisher[T]) first(row Row[T]) bool {
	first := true
	for _, id := range p.earlier(row) {
		_, others := p.others[id.short()]
		first = first && (others || !p.known.has(id))
		delete(p.others, id.short())
	}
	return first
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
	p.pages = append(p.pages, page[T]{rows, time.Now(), p.sink.Publish(context.WithoutCancel(ctx), rows)})
}

// collect waits until no more pages than these are being stored. What was not stored is
// published again after it is known what others have stored.
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
		if rest = p.unknown(rest, time.Now()); len(rest) > 0 {
			p.begin(ctx, rest)
		}
		most = 0
	}
}

// settle waits until no more pages than these are being stored; for all after an error.
func (p *publisher[T]) settle(most int) (rest []Row[T], err error) {
	for len(p.pages) > most {
		page := p.pages[0]
		p.pages = p.pages[1:]
		n, failed := page.wait()
		failpoint.Here(failpoint.AfterPublish)
		for i, row := range page.rows {
			seen := p.pending[row.ID.short()]
			delete(p.pending, row.ID.short())
			if i < n {
				if p.debt.counts() && p.first(row) {
					p.grown++
				}
				p.known.add(row.ID, time.Now())
				p.doubt(row.ID)
				if seen == p.linked {
					p.fresh[row.ID.short()] = page.at.UnixNano()
				}
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
