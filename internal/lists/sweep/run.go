package sweep

import (
	"context"
	"fmt"
	"sync"
	"time"

	"errand/internal/failpoint"
	"errand/internal/retry"
)

type run[T any] struct {
	*Sweeper[T]
	publisher[T]
	background
	state  Mark // how far the list is known
	marked Mark // as it was stored last
	anchored
	told     int       // events stored before the last mark
	followed time.Time // when a standby learned what was published
	seen     sight
}

// sight is what one sweep has seen.
type sight struct {
	stored  int       // events stored before it
	through time.Time // how new the rows were at the end that grows, if the head came through
	whole   bool      // the first page is the whole list
	newest  time.Time // of all rows, of all sweeps
}

// sweep reads what may be new, and a few pages of the rest. It returns how many events it stored.
func (r *run[T]) sweep(ctx context.Context) (stored int, err error) {
	r.seen = sight{stored: r.stored, newest: r.seen.newest}
	if err = r.head(ctx); err == nil {
		err = r.rest(ctx)
	}
	if err == nil {
		err = r.collect(ctx, 0)
	}
	if err != nil {
		return 0, err
	}
	return r.stored - r.seen.stored, r.finish(ctx)
}

// lead takes the leadership, learns what was published, and goes on from the last mark.
func (r *run[T]) lead(ctx context.Context) error {
	if err := r.leadAgain(ctx); err != nil {
		return err
	}
	m, err := r.Sink.LastMark(ctx)
	if err != nil {
		return fmt.Errorf("sweep: read the last mark: %w", err)
	}
	// A mark in the future, by a wrong clock or by mistake, would hide every row until then.
	now := time.Now()
	if m.CompleteThrough.IsZero() {
		m.Since = later(m.Since, r.Since)
	}
	if m.Since.After(now) {
		m.Since = time.Time{}
	}
	m.At, m.CompleteThrough = earlier(m.At, now), earlier(m.CompleteThrough, now)
	r.since = later(r.since, m.Since)
	r.state, r.marked, r.background, r.anchored = m, m, background{}, anchored{end: m.Total}
	r.told = r.stored
	if m.Scanned > 0 {
		r.scan, r.scanAt = r.newReading(time.Time{}), now
		r.scan.resume(m.Scanned)
		r.scan.resumed = true
	}
	return nil
}

// firstRead reports whether the list was read to its end at least once.
func (r *run[T]) firstRead() bool {
	return !r.state.CompleteThrough.IsZero() || !r.complete.IsZero()
}

func (r *run[T]) page(ctx context.Context, ask window) (Page[T], error) {
	return retry.Read(ctx, nil, r.Policy, func(ctx context.Context) (Page[T], error) {
		return r.List.Page(ctx, ask.page, ask.limit)
	})
}

// follow goes on with a reading until done, or enough says so, reading the next page while one is published.
func (r *run[T]) follow(ctx context.Context, reading *reading, enough func(keys []uint64, newest time.Time) bool) error {
	ctx, stop := context.WithCancel(ctx)
	var ahead sync.WaitGroup
	defer ahead.Wait()
	defer stop()
	page, err := r.page(ctx, reading.asked)
	for {
		if err != nil {
			return err
		}
		keys, newest := note(reading, page.Rows, time.Now(), r.Overlap)
		r.seen.newest = later(r.seen.newest, newest)
		reading.take(keys, page.Total, page.Limit)
		unknown := r.unknown(page.Rows, r.placed(reading.from, page.Total))
		reading.found += len(unknown)
		done := enough(keys, newest) || reading.done()
		if !done {
			ahead.Go(func() { page, err = r.page(ctx, reading.asked) })
		}
		failpoint.Here(failpoint.Page)
		if err := r.publish(ctx, unknown); err != nil {
			return err
		}
		if done {
			return r.stayed(ctx, reading)
		}
		if err := r.pause(ctx, 0, true); err != nil {
			return err
		}
		ahead.Wait()
	}
}

// stayed looks at the first page of a complete reading again, where only that shows whether rows were missed: pages of one
// size do not overlap, and a total that stands still may belong to a list that drops rows in front and grows behind.
func (r *run[T]) stayed(ctx context.Context, of *reading) error {
	if of.state != whole || !of.fixed || of.count.read < 2 || len(of.first) == 0 || of.order(r.state.Order) == NewestFirst {
		return nil
	}
	page, err := r.page(ctx, of.asked1)
	if err == nil && (len(page.Rows) == 0 || page.Rows[0].ID.Key() != of.first[0]) {
		of.state, of.skipped = short, true
	}
	return err
}

// finish ends a sweep that has read everything it had to.
func (r *run[T]) finish(ctx context.Context) error {
	now := time.Now()
	r.state.At = now
	r.state.New = r.stored - r.told
	r.state.CompleteThrough = later(r.through(), r.state.CompleteThrough)
	r.state.Since = r.since
	r.state.Scanned = 0
	if r.scan != nil && now.Sub(r.scanAt) > retry.LongRound {
		r.state.Scanned = r.scan.end
	}
	if r.markIsDue(now) {
		failpoint.Here(failpoint.BeforeMark)
		if err := r.again(ctx, func() error { return r.Sink.Mark(context.WithoutCancel(ctx), r.state) }); err != nil {
			return err
		}
		failpoint.Here(failpoint.AfterMark)
		r.marked, r.told = r.state, r.stored
	}
	if now.Sub(r.keptAt) > retry.MarkEvery {
		if err := r.readKept(ctx); err != nil {
			return err
		}
	}
	r.Logger.Debug().Int("new", r.stored-r.seen.stored).Int("total", r.state.Total).
		Time("complete_through", r.state.CompleteThrough).Msg("sweep: done")
	return r.again(ctx, func() error { return r.Sink.Swept(ctx, r.state.CompleteThrough) })
}

// through returns how far the list is published; zero if that is unknown.
func (r *run[T]) through() time.Time {
	switch {
	case !r.firstRead():
		return time.Time{}
	case r.state.Order == Unordered && !r.seen.whole:
		return earlier(r.seen.newest, r.complete.Add(-r.Overlap)) // a row is late by at most Overlap
	}
	return r.seen.through
}

// markIsDue reports whether a mark must be stored: when idle once an hour, since the stream drops old events.
func (r *run[T]) markIsDue(now time.Time) bool {
	age := now.Sub(r.marked.At)
	return !r.state.CompleteThrough.IsZero() && (r.marked.CompleteThrough.IsZero() || age > retry.MarkEvery || age >= retry.MarkMin &&
		(r.state.New > 0 || r.state.CompleteThrough.After(r.marked.CompleteThrough)) ||
		r.state.Scanned > 0 && age > retry.LongRound)
}

// again calls store until nothing is in its way but another sweeper.
func (r *run[T]) again(ctx context.Context, store func() error) error {
	for try := 1; ; try++ {
		err := store()
		if err == nil {
			return nil
		}
		if err := r.relearn(ctx, err, try); err != nil {
			return err
		}
	}
}

// untilNext is the pause after a sweep that took so long, where idle is due: what is under way takes its time.
func (r *run[T]) untilNext(idle, took time.Duration) time.Duration {
	switch {
	case r.scan != nil && !r.firstRead():
		return 0
	case r.Recent > 0 && r.near == nil && r.nearHasPlace() && !r.nearAt.IsZero(): // it begins again as soon as it may
		return max(0, min(idle-took, time.Until(r.nearAt.Add(r.Interval))))
	case r.scan != nil || r.near != nil || len(r.open) > 0:
		return max(0, idle-took)
	}
	return idle
}

// fail ends a failed sweep. What it read may not be stored: a reading that counted it is not complete.
func (r *run[T]) fail() {
	rest, _ := r.settle(0)
	if len(rest) == 0 && !r.lost {
		return
	}
	r.lost, r.near, r.part = false, nil, nil
	if r.scan != nil && r.scan.done() {
		r.scan = nil
	}
	if r.scan != nil {
		r.scan.skipped, r.scan.resumed = true, true
	}
}
