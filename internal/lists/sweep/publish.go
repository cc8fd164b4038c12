package sweep

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"errand/internal/failpoint"
	"errand/internal/retry"
)

// published is what was published, and since when all of it is known.
type published struct {
	known  known
	since  time.Time // rows made before count as published: see Mark
	keptAt time.Time // when the sink was asked for it
	stored int       // events stored
}

// maxTries is how often publishing is begun again before a sweep fails.
const maxTries = 20

// again calls store until nothing is in its way: what others published is learned.
func (r *run[T]) again(ctx context.Context, store func() error) error {
	for try := 1; ; try++ {
		err := store()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !errors.Is(err, ErrBehind), try == maxTries:
			return fmt.Errorf("sweep: publish: %w", err)
		}
		retry.Pause(ctx, time.Duration(min(try, 10))*retry.RelearnStep)
		if err := r.leadAgain(ctx); err != nil {
			return err
		}
	}
}

// leadAgain leads again, and learns what was published meanwhile.
func (r *run[T]) leadAgain(ctx context.Context) error {
	if err := r.readKept(ctx); err != nil { // before anything is stored
		return err
	}
	if err := r.Sink.Lead(ctx); err != nil {
		return fmt.Errorf("sweep: lead: %w", err)
	}
	return r.learn(ctx)
}

// learn learns what was published.
func (r *run[T]) learn(ctx context.Context) error {
	err := r.Sink.Learn(ctx, func(s Stored) {
		r.known.add(s.ID, s.At)
		r.known.watch(s.ID.Key(), !s.Open, openRow{since: s.At, at: s.At})
	})
	if err != nil {
		return fmt.Errorf("sweep: learn published events: %w", err)
	}
	return nil
}

// readKept asks since when events are kept, and forgets those that are not. After a long absence none is kept, and what came
// since the last one is still to be published: events that are stored meanwhile do not change that.
func (r *run[T]) readKept(ctx context.Context) error {
	now := time.Now()
	kept, err := r.Sink.Kept(ctx)
	if err != nil {
		return fmt.Errorf("sweep: read since when events are kept: %w", err)
	}
	if !r.since.IsZero() && !r.keptAt.IsZero() {
		kept = earlier(kept, r.since.Add(now.Sub(r.keptAt)))
	}
	r.since, r.keptAt = later(r.since, kept), now
	r.known.drop(r.since.Add(-r.RoundEvery), now) // all is read again meanwhile
	return nil
}

// unknown returns the rows whose states were not published, in the room of all, and counts them as published. place is where they
// are in the list, or nil.
func (r *run[T]) unknown(rows []Row[T], place func(i int) int) []Row[T] {
	now, unknown := time.Now(), rows[:0]
	for i, row := range rows {
		stored := r.known.stored(row.ID)
		switch {
		case !stored.IsZero():
			if stored.Before(r.since) && !row.Final { // its event is gone, but not what it says
				r.known.add(row.ID, now)
			}
		case !row.At.IsZero() && row.At.Before(r.since) && !r.watched(row, now): // it has aged out
			if !row.Final || now.Sub(row.At) < watchOpen { // but its next state has not, and a row with the same key is watched
				r.known.add(row.ID, now)
			}
		default:
			unknown = append(unknown, row)
			if r.known.add(row.ID, now); row.Final { // it is watched until its event is stored
				continue
			}
		}
		if place != nil {
			r.known.watch(row.ID.Key(), row.Final, openRow{since: now, seen: now, at: row.At, place: place(i)})
		}
	}
	clear(rows[len(unknown):])
	return unknown
}

// watched reports whether another state of the row was seen or published before now. A list may show an entry twice, in two states.
func (r *run[T]) watched(row Row[T], now time.Time) bool {
	open, is := r.known.open[row.ID.Key()]
	is = is && open.since.Before(now) && (open.seen.IsZero() || open.at.Equal(row.At)) // of no other row
	return is || row.Before != ID{} && !r.known.stored(row.Before).IsZero()
}

// batch is rows that are being stored.
type batch[T any] struct {
	rows []Row[T]
	wait func() (stored int, err error)
}

// publish begins to store the rows whose states were not published, see unknown, and waits until at most so many batches are
// under way.
func (r *run[T]) publish(ctx context.Context, rows []Row[T], place func(i int) int, most int) error {
	err := r.again(ctx, func() (err error) {
		if rows, place = r.unknown(rows, place), nil; len(rows) > 0 { // others' were learned
			failpoint.Here(failpoint.BeforePublish)
			// When ctx ends, the events under way are waited for: they would have to be learned again.
			r.underWay = append(r.underWay, batch[T]{rows, r.Sink.Publish(context.WithoutCancel(ctx), rows)})
		}
		rows, err = r.settle(most)
		return err
	})
	if err != nil { // a reading that counted the rows is not complete
		r.heading, r.near = nil, nil
		if r.scan != nil {
			r.scan.skipped = true
		}
	}
	return err
}

// settle waits until at most so many batches are under way, none after an error, and returns the rows that were not stored.
func (r *run[T]) settle(most int) (rest []Row[T], err error) {
	for len(r.underWay) > most || err != nil && len(r.underWay) > 0 {
		b := r.underWay[0]
		r.underWay = r.underWay[1:]
		n, failed := b.wait()
		failpoint.Here(failpoint.AfterPublish)
		r.stored += n
		for i, row := range b.rows {
			switch {
			case i >= n:
				r.known.remove(row.ID)
			case row.Final:
				delete(r.known.open, row.ID.Key())
			}
		}
		rest = append(rest, b.rows[n:]...)
		if failed != nil && (err == nil || !errors.Is(failed, ErrBehind) && !errors.Is(err, ErrReset)) {
			err = failed
		}
	}
	return rest, err
}

// extra is rows from another source than the pages, such as a look-up.
type extra[T any] struct {
	rows []Row[T]
	done chan<- error
}

func (s *Sweeper[T]) init() { s.once.Do(func() { s.asked = make(chan extra[T]) }) }

// Publish has rows from another source stored, each state once; they do not move the mark. It waits for Run until ctx ends,
// and is safe for concurrent use. ErrLed: another sweeper leads.
func (s *Sweeper[T]) Publish(ctx context.Context, rows []Row[T]) error {
	s.init()
	done := make(chan error)
	select {
	case s.asked <- extra[T]{rows, done}:
		return <-done
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Leads waits until this sweeper leads. Its error is the context's.
func (s *Sweeper[T]) Leads(ctx context.Context) error {
	for s.Publish(ctx, nil) != nil {
		if !retry.Pause(ctx, retry.StandBy) {
			return context.Cause(ctx)
		}
	}
	return nil
}

// pause waits, and publishes extra rows meanwhile if this sweeper leads. It ends with the first error.
func (r *run[T]) pause(ctx context.Context, end <-chan time.Time, leads bool) error {
	for {
		select {
		case <-end:
			return nil
		case <-ctx.Done():
			return nil
		case e := <-r.asked:
			err := ErrLed
			if leads {
				err = r.publish(ctx, e.rows, nil, 0)
			}
			if e.done <- err; err != nil && leads {
				return err
			}
		}
	}
}

// known is the set of published states, rebuilt from the events.
type known struct {
	parts []part             // oldest first
	open  map[uint64]openRow // rows whose state may change, by their keys
}

type openRow struct {
	since time.Time // when it was seen first
	seen  time.Time // when it was seen last; zero if by others only
	at    time.Time // when it was made, or its event
	place int       // in the list, when it was seen last
}

// part is states that are forgotten at once: the last one was stored at a time.
type part struct {
	states map[uint64]struct{}
	stored time.Time
}

// maxPart is the number of states of a part: as many as a map has in 12 bytes each.
const maxPart = 200_000

// watchOpen is how long a row whose state may change is watched: servers give up after five days (RFC 5321, 4.5.4.1).
const watchOpen = 5 * 24 * time.Hour

// stored returns a time that is not before a state began to be stored, or counted as stored; zero if it is not known.
func (k *known) stored(id ID) time.Time {
	for _, p := range slices.Backward(k.parts) {
		if _, ok := p.states[id.State()]; ok {
			return p.stored
		}
	}
	return time.Time{}
}

func (k *known) add(id ID, stored time.Time) {
	n := len(k.parts)
	if n == 0 || len(k.parts[n-1].states) >= maxPart {
		k.parts = append(k.parts, part{states: map[uint64]struct{}{}})
		n++
	}
	k.parts[n-1].states[id.State()], k.parts[n-1].stored = struct{}{}, stored
}

// remove forgets a state that was not stored.
func (k *known) remove(id ID) {
	for _, p := range k.parts {
		delete(p.states, id.State())
	}
}

// drop forgets what was published before a time and not seen since for as long as rows are watched, and rows that were.
func (k *known) drop(kept, now time.Time) {
	k.parts = slices.DeleteFunc(k.parts, func(p part) bool { return p.stored.Add(watchOpen).Before(kept) })
	maps.DeleteFunc(k.open, func(_ uint64, row openRow) bool { return now.Sub(row.since) > watchOpen })
}

// watch notes that the state of a row may still change, or will not.
func (k *known) watch(key uint64, final bool, row openRow) {
	if final {
		delete(k.open, key)
		return
	}
	if before, there := k.open[key]; there {
		row.since = before.since
	} else if !row.at.IsZero() && row.since.Sub(row.at) >= watchOpen {
		return
	}
	if k.open == nil {
		k.open = map[uint64]openRow{}
	}
	k.open[key] = row
}
