package sweep

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"errand/internal/failpoint"
	"errand/internal/retry"
)

// inFlight is how many pages are being stored at once: the next are read while one's acknowledgements are on their way.
const inFlight = 3

// publisher has rows published, each state once.
type publisher[T any] struct {
	sink    Sink[T]
	earlier func(Row[T]) []ID
	known   known
	since   time.Time // rows made before count as published: see Mark
	keptAt  time.Time // when the sink was asked for it
	pages   []page[T] // being stored, oldest first
	pending map[uint64]struct{}
	stored  int  // events stored
	lost    bool // rows of a page could not be stored
}

type page[T any] struct {
	rows []Row[T]
	wait func() (int, error)
}

func newPublisher[T any](list List[T], sink Sink[T]) publisher[T] {
	return publisher[T]{sink: sink, earlier: list.Earlier, pending: map[uint64]struct{}{}}
}

// maxTries is how often publishing is begun again before a sweep fails.
const maxTries = 20

// relearn makes publishing possible again. Its error: it would be useless.
func (p *publisher[T]) relearn(ctx context.Context, err error, try int) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil && !errors.Is(err, ErrBehind), try == maxTries:
		return fmt.Errorf("sweep: publish: %w", err)
	}
	retry.Pause(ctx, time.Duration(min(try, 10))*retry.RelearnStep)
	return p.leadAgain(ctx)
}

// leadAgain leads again, and learns what was published meanwhile.
func (p *publisher[T]) leadAgain(ctx context.Context) error {
	if err := p.readKept(ctx); err != nil { // before anything is stored
		return err
	}
	if err := p.sink.Lead(ctx); err != nil {
		return fmt.Errorf("sweep: lead: %w", err)
	}
	return p.learn(ctx)
}

// learn learns what was published.
func (p *publisher[T]) learn(ctx context.Context) error {
	for s, err := range p.sink.Learn(ctx) {
		if err != nil {
			return fmt.Errorf("sweep: learn published events: %w", err)
		}
		p.known.add(s.ID, s.At)
		p.known.watch(s.ID.Key(), !s.Open, openRow{since: s.At, at: s.At, state: s.ID.short()})
	}
	return nil
}

// readKept asks what is kept of the events, and forgets what is not. After a long absence nothing is kept, and what came
// since the last event is still to be published: the events that are stored meanwhile do not change that.
func (p *publisher[T]) readKept(ctx context.Context) error {
	now := time.Now()
	kept, err := p.sink.Kept(ctx)
	if err != nil {
		return fmt.Errorf("sweep: read since when events are kept: %w", err)
	}
	if !p.since.IsZero() && !p.keptAt.IsZero() {
		kept = earlier(kept, p.since.Add(now.Sub(p.keptAt)))
	}
	p.since, p.keptAt = later(p.since, kept), now
	p.known.drop(p.since, now)
	return nil
}

// unknown returns the rows whose states were not published, in the room of all. place is where they are in the list, or nil.
func (p *publisher[T]) unknown(rows []Row[T], place func(i int) int) []Row[T] {
	now, unknown := time.Now(), rows[:0]
	for i, row := range rows {
		if _, twice := p.pending[row.ID.short()]; twice {
			continue
		}
		was := p.known.open[row.ID.Key()].state
		switch {
		case was == row.ID.short():
		case p.known.has(row.ID):
			was = row.ID.short()
		case !row.At.IsZero() && row.At.Before(p.since) && !p.watched(row): // it has aged out
			if !row.Final { // but its next state has not
				p.known.add(row.ID, now)
			}
		default:
			unknown = append(unknown, row)
			p.pending[row.ID.short()] = struct{}{}
		}
		if place != nil {
			p.known.watch(row.ID.Key(), row.Final, openRow{since: now, seen: now, at: row.At, place: place(i), state: was})
		}
	}
	clear(rows[len(unknown):])
	return unknown
}

// watched reports whether another state of the row was seen or published.
func (p *publisher[T]) watched(row Row[T]) bool {
	_, open := p.known.open[row.ID.Key()]
	return open || slices.ContainsFunc(p.earlier(row), p.known.has)
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
		if rest = p.unknown(rest, nil); len(rest) > 0 {
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
				p.known.stored(row.ID, time.Now())
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
