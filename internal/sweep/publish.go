package sweep

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"errand/internal/failpoint"
	"errand/internal/retry"
)

const (
	// inFlight is how many pages are being stored at once: the next pages are read and
	// written while the acknowledgements of one are on their way.
	inFlight = 3
	// maxTries is how often other sweepers may take the leadership before a sweep fails.
	maxTries = 20
)

// publisher has rows published, each state once, whoever else publishes.
type publisher[T any] struct {
	sink    Sink[T]
	earlier func(Row[T]) []ID
	known   known
	kept    time.Time // see Sink.Kept
	keptAt  time.Time // when that was asked
	since   time.Time // rows made before are not published
	pages   []page[T] // being stored, oldest first
	pending map[ID]struct{}
	fresh   map[ID]struct{} // became known in this sweep
	stored  int             // events stored in this sweep
}

// page is a page's rows that are being stored.
type page[T any] struct {
	rows []Row[T]
	wait func() (int, error)
}

func newPublisher[T any](list List[T], sink Sink[T]) publisher[T] {
	return publisher[T]{sink: sink, earlier: list.Earlier, pending: map[ID]struct{}{}, fresh: map[ID]struct{}{}}
}

// unknown returns the rows whose states were not published; met reports whether there is
// one that was, before this sweep.
func (p *publisher[T]) unknown(rows []Row[T]) (unknown []Row[T], met bool) {
	now := time.Now()
	for _, row := range rows {
		if _, twice := p.pending[row.ID]; twice {
			continue
		}
		switch {
		case p.known.has(row.ID):
			_, fresh := p.fresh[row.ID]
			met = met || !fresh
		case !row.At.IsZero() && row.At.Before(p.since):
			continue
		case !row.At.IsZero() && row.At.Before(p.kept) && !p.changed(row): // it has aged out
			met = true
			if !row.Final { // but its next state has not
				p.known.add(row.ID, now)
			}
		default:
			unknown = append(unknown, row)
			p.pending[row.ID] = struct{}{}
		}
		if row.At.IsZero() || now.Sub(row.At) < watchOpen {
			p.known.watch(row.Key, row.Final, now)
		}
	}
	return unknown, met
}

// changed reports whether another state of the row was published.
func (p *publisher[T]) changed(row Row[T]) bool {
	_, watched := p.known.open[row.Key]
	return watched || slices.ContainsFunc(p.earlier(row), p.known.has)
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

// collect waits until no more pages than these are being stored. What was not stored is
// published again after it is known what others have stored.
func (p *publisher[T]) collect(ctx context.Context, most int) error {
	for try := 1; ; try++ {
		rest, err := p.settle(most)
		if err == nil && len(rest) == 0 {
			return nil
		}
		if err := p.relearn(ctx, err, try); err != nil {
			return err
		}
		if rest, _ = p.unknown(rest); len(rest) > 0 {
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
			delete(p.pending, row.ID)
			if i < n {
				p.add(row.ID, time.Now())
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

func (p *publisher[T]) add(id ID, stored time.Time) {
	p.known.add(id, stored)
	p.fresh[id] = struct{}{}
}

// again calls store until no other sweeper is in its way.
func (p *publisher[T]) again(ctx context.Context, store func(context.Context) error) error {
	for try := 1; ; try++ {
		err := store(context.WithoutCancel(ctx))
		if err == nil {
			return nil
		}
		if err := p.relearn(ctx, err, try); err != nil {
			return err
		}
	}
}

// relearn learns what another sweeper published after it took the leadership. The error
// says why publishing again would be useless.
func (p *publisher[T]) relearn(ctx context.Context, err error, try int) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil && !errors.Is(err, ErrBehind), try == maxTries:
		return fmt.Errorf("sweep: publish: %w", err)
	}
	// Two sweepers must not take the leadership from each other for ever.
	retry.Pause(ctx, rand.N(time.Duration(min(try, 10))*retry.RelearnStep))
	return p.learn(ctx, time.Time{})
}

// learn learns what was published. What was stored after the last mark is fresh: it does
// not show that the list was watched before.
func (p *publisher[T]) learn(ctx context.Context, mark time.Time) error {
	if err := p.ask(ctx); err != nil {
		return err
	}
	for s, err := range p.sink.Learn(ctx) {
		if err != nil {
			return fmt.Errorf("sweep: learn published events: %w", err)
		}
		p.known.add(s.ID, s.At)
		if s.At.Truncate(time.Millisecond).After(mark) { // as marks are written
			p.fresh[s.ID] = struct{}{}
		}
	}
	return nil
}

// ask asks what is kept of the events, before anything is stored, and forgets what is not.
// After a long absence nothing is kept, and what came since the last event is still to be
// published: the events that are stored meanwhile do not change that.
func (p *publisher[T]) ask(ctx context.Context) error {
	now := time.Now()
	kept, err := p.sink.Kept(ctx)
	if err != nil {
		return fmt.Errorf("sweep: read since when events are kept: %w", err)
	}
	if !p.kept.IsZero() {
		kept = earlier(kept, p.kept.Add(now.Sub(p.keptAt)))
	}
	p.kept, p.keptAt = kept, now
	p.known.drop(kept, now)
	return nil
}
