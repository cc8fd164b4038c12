package sweep

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"errand/internal/failpoint"
	"errand/internal/retry"
)

// run is a sweeper at work.
type run[T any] struct {
	*Sweeper[T]
	publisher[T]
	state    Mark     // how far the list is known
	marked   Mark     // as it was stored last
	seen     sight    // what this sweep has seen
	reading  Reading  // the last complete one
	near     *reading // under way: what is not older than Overlap; nil: none
	proof    *reading // under way: what the sink wants
	scan     *reading // under way: everything
	rounds   rounds
	debt     debt
	tailedAt time.Time // when the tail was last read
}

// sight is what one sweep has seen.
type sight struct {
	began  time.Time
	stored int       // events stored before it
	known  int       // rows seen before it
	others bool      // the last page shows rows that others published: there may be more that they did not
	head   time.Time // the newest row of the first page
	newest time.Time // of all rows, of all sweeps
	rows   bool      // there were rows
	met    bool      // there was a row that was published before the sweep
}

// sweep reads what may be new, and a few pages of the rest. It returns how many events it
// stored.
func (r *run[T]) sweep(ctx context.Context) (stored int, err error) {
	if r.state.At.IsZero() {
		if err := r.start(ctx); err != nil {
			return 0, err
		}
	}
	r.seen = sight{began: time.Now(), stored: r.stored, known: r.rows, newest: r.seen.newest}
	size, err := r.head(ctx)
	if err != nil {
		return 0, err
	}
	if err := r.tail(ctx, size); err != nil {
		return 0, err
	}
	if err := r.rest(ctx); err != nil {
		return 0, err
	}
	if err := r.collect(ctx, 0); err != nil {
		return 0, err
	}
	return r.stored - r.seen.stored, r.finish(ctx)
}

// start continues from the last mark. It asks the list first: whoever cannot read it must
// not take the leadership from somebody who can.
func (r *run[T]) start(ctx context.Context) error {
	if _, err := r.page(ctx, window{1, r.Limit}); err != nil {
		return err
	}
	m, err := r.Sink.LastMark(ctx)
	if err != nil {
		return fmt.Errorf("sweep: read the last mark: %w", err)
	}
	if err := r.learn(ctx, m.At); err != nil {
		return err
	}
	// A mark in the future, by a wrong clock or by mistake, would hide every row until then.
	now := time.Now()
	if m.CompleteThrough.IsZero() {
		m.Since = r.Settings.Since
	}
	if m.WatchedSince.IsZero() {
		m.WatchedSince = now
	}
	m.At, m.CompleteThrough, m.Since = earlier(m.At, now), earlier(m.CompleteThrough, now), earlier(m.Since, now)
	r.since, r.state, r.marked = m.Since, m, m
	r.state.At, r.state.New = now, 0
	if m.Scanned > 0 {
		r.scan, r.rounds.began = newReading(r.Limit, r.Overlap, time.Time{}), now
		r.scan.resume(m.Scanned)
	}
	return nil
}

// firstRead reports whether the list was read to its end at least once.
func (r *run[T]) firstRead() bool {
	return !r.state.CompleteThrough.IsZero() || !r.rounds.complete.IsZero()
}

func (r *run[T]) page(ctx context.Context, ask window) (Page[T], error) {
	return retry.Read(ctx, nil, r.Policy, func(ctx context.Context) (Page[T], error) {
		return r.List.Page(ctx, ask.page, ask.limit)
	})
}

// take takes a page and returns the rows to publish, and the time of its newest row.
func (r *run[T]) take(rows []Row[T]) (unknown []Row[T], times []time.Time) {
	learned := len(r.learned)
	unknown, met := r.unknown(rows)
	r.seen.others = len(r.learned) < learned
	r.seen.rows, r.seen.met = r.seen.rows || len(rows) > 0, r.seen.met || met
	for _, row := range rows {
		if !row.At.IsZero() {
			times = append(times, row.At)
			r.seen.newest = later(r.seen.newest, row.At)
		}
	}
	return unknown, times
}

// follow goes on with a reading until it is done, or enough says so after a page. It reads
// the next page while one is published.
func (r *run[T]) follow(ctx context.Context, reading *reading, enough func(unknown int, newest time.Time) bool) error {
	ctx, stop := context.WithCancel(ctx)
	var ahead sync.WaitGroup
	defer ahead.Wait()
	defer stop()
	page, err := r.page(ctx, reading.asked)
	for {
		if err != nil {
			return err
		}
		unknown, times := r.take(page.Rows)
		newest := reading.note(times)
		keys := make([]uint64, len(page.Rows))
		for i, row := range page.Rows {
			keys[i] = row.Key
		}
		reading.take(keys, page.Total, page.Limit)
		reading.found += len(unknown)
		done := enough(len(unknown), newest) || reading.done()
		if !done {
			ahead.Go(func() { page, err = r.page(ctx, reading.asked) })
		}
		failpoint.Here(failpoint.Page)
		if err := r.publish(ctx, unknown); err != nil {
			return err
		}
		if done {
			return nil
		}
		ahead.Wait()
	}
}

// head reads from the first page on, to one that is wholly known, and not only because
// others have published it: they may have died before they published what follows.
func (r *run[T]) head(ctx context.Context) (size int, err error) {
	h := newReading(r.Limit, r.Overlap, time.Time{})
	first := r.known.empty() // then the rest is left to scan
	err = r.follow(ctx, h, func(unknown int, newest time.Time) bool {
		if h.pages <= 1 && r.seen.head.IsZero() {
			r.seen.head, r.state.Total = newest, h.total
		}
		return first || unknown == 0 && !r.seen.others
	})
	if err == nil && h.state == whole {
		r.ended(h)
	}
	return h.size, err
}

// tail reads from the last page back to one that is wholly known, and then what follows the
// last one. It does so when the list has grown and head did not find by what, and now and
// then.
func (r *run[T]) tail(ctx context.Context, size int) error {
	found := r.stored - r.seen.stored + len(r.pending)
	last := (r.state.Total + size - 1) / size
	grown := r.state.Total-r.debt.last > found || r.state.Order == OldestFirst
	if r.debt.last = r.state.Total; last < 2 || !grown && r.seen.began.Sub(r.tailedAt) < retry.TailEvery {
		return nil
	}
	r.tailedAt = r.seen.began
	for number, step := last, -1; number > 1; number += step {
		page, err := r.page(ctx, window{number, size})
		if err != nil {
			return err
		}
		unknown, _ := r.take(page.Rows)
		if err := r.publish(ctx, unknown); err != nil {
			return err
		}
		switch {
		case step > 0 && len(page.Rows) < size, r.known.empty():
			return nil
		case step < 0 && (len(unknown) == 0 && !r.seen.others || number == 2):
			number, step = last, 1
		}
	}
	return nil
}

// rest goes on with the readings of what is not new. All together read pagesPerSecond, and
// as fast as they can until the list was read once; what the sink wants, as much again.
func (r *run[T]) rest(ctx context.Context) error {
	now := time.Now()
	switch {
	case r.near == nil && r.state.Order == NewestFirst && now.Sub(r.rounds.near) >= retry.RoundEvery:
		r.near, r.rounds.near = newReading(r.Limit, r.Overlap, r.state.CompleteThrough.Add(-r.Overlap)), now
	}
	if r.scan == nil && now.Sub(r.rounds.began) >= retry.RoundEvery {
		r.scan, r.rounds.began = newReading(r.Limit, r.Overlap, r.scanBack(now)), now
	}
	pages := r.rounds.pages(now)
	if !r.firstRead() {
		pages = math.MaxInt
	}
	if r.near != nil && r.scan != nil {
		pages = (pages + 1) / 2
	}
	for _, at := range []**reading{&r.near, &r.proof, &r.scan} {
		if *at == nil || pages == 0 {
			continue
		}
		if err := r.step(ctx, *at, pages); err != nil {
			return err
		}
		if (*at).done() {
			r.ended(*at)
			*at = nil
		}
	}
	return nil
}

// scanBack is how far back the next scan reads: nothing is published that is older than
// Since. While rows are watched whose state may change, every other scan of a long list
// reads only as far back as they can be.
func (r *run[T]) scanBack(now time.Time) time.Time {
	back := r.state.Since
	if r.rounds.recent = !r.rounds.recent && len(r.known.open) > 0 && r.rounds.took > retry.LongRound && r.state.Order == NewestFirst; r.rounds.recent {
		back = later(back, now.Add(-watchOpen))
	}
	return back
}

// step reads some pages, and for a second at most: head must not wait.
func (r *run[T]) step(ctx context.Context, reading *reading, pages int) error {
	until := time.Now().Add(retry.SweepMin)
	return r.follow(ctx, reading, func(_ int, newest time.Time) bool {
		pages--
		if reading.reached(newest, r.seen.newest) {
			reading.state = whole
			return true
		}
		return pages <= 0 || !time.Now().Before(until)
	})
}

// ended notes that a reading has ended.
func (r *run[T]) ended(reading *reading) {
	complete := reading.state == whole
	if complete && reading.end >= reading.total {
		reading.Back = time.Time{}
	}
	if complete && !reading.Began.Before(r.reading.Began) {
		r.reading = reading.Reading
	}
	if reading != r.scan && !reading.Back.IsZero() || reading == r.scan && r.rounds.recent {
		return
	}
	if r.rounds.ended(reading, complete) {
		r.state.Order = reading.order()
		if r.debt.forgive(reading, complete, r.rows-r.seen.known) {
			clear(r.learned)
		}
	}
}

// finish ends a sweep that has read everything it had to.
func (r *run[T]) finish(ctx context.Context) error {
	now := time.Now()
	if r.seen.rows && !r.seen.met { // what was there before may have come and gone
		r.state.WatchedSince = r.seen.began
	}
	r.state.At = now
	r.state.New += r.stored - r.seen.stored
	r.state.CompleteThrough = later(earlier(r.through(), now), r.state.CompleteThrough)
	r.state.Scanned = 0
	if r.scan != nil && now.Sub(r.rounds.began) > retry.LongRound {
		r.state.Scanned = r.scan.end
	}
	r.debt.note(r.state.Total, r.rows-r.seen.known, now)
	if r.markIsDue(now) {
		failpoint.Here(failpoint.BeforeMark)
		if err := r.again(ctx, func(ctx context.Context) error { return r.Sink.Mark(ctx, r.state) }); err != nil {
			return err
		}
		failpoint.Here(failpoint.AfterMark)
		r.marked, r.state.New = r.state, 0
	}
	clear(r.fresh)
	if now.Sub(r.keptAt) > retry.MarkEvery {
		if err := r.ask(ctx); err != nil {
			return err
		}
	}
	r.Logger.Debug().Int("new", r.stored-r.seen.stored).Int("total", r.state.Total).Time("complete_through", r.state.CompleteThrough).Msg("sweep: done")
	reading := r.reading
	reading.Owed = r.debt.owed > 0
	return r.again(ctx, func(ctx context.Context) error {
		wanted, err := r.Sink.Swept(ctx, Swept{CompleteThrough: r.state.CompleteThrough, WatchedSince: r.state.WatchedSince, Reading: reading})
		if err == nil && !wanted.IsZero() && r.proof == nil {
			r.proof = newReading(r.Limit, r.Overlap, wanted)
		}
		return err
	})
}

// through is how far the list is published; zero: not known.
func (r *run[T]) through() time.Time {
	switch {
	case !r.firstRead():
		return time.Time{}
	case r.state.Order == NewestFirst:
		return r.seen.head
	case r.state.Order == OldestFirst:
		return r.seen.newest
	}
	return earlier(r.seen.newest, r.rounds.complete.Add(-r.Overlap)) // a row is late by at most Overlap
}

// markIsDue reports whether a mark must be stored. An idle sweeper does so every hour: the
// stream drops old events, and a list without a mark is published again.
func (r *run[T]) markIsDue(now time.Time) bool {
	return !r.state.CompleteThrough.IsZero() && (r.state.New > 0 || !r.state.WatchedSince.Equal(r.marked.WatchedSince) ||
		r.state.CompleteThrough.Sub(r.marked.CompleteThrough) > time.Minute || now.Sub(r.marked.At) > retry.MarkEvery ||
		r.state.Total != r.marked.Total && now.Sub(r.marked.At) > time.Minute || // by a sweep that was paused
		r.state.Scanned > 0 && now.Sub(r.marked.At) > retry.LongRound)
}
