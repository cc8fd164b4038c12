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
	tailedAt time.Time // when the tail was last read
}

// sight is what one sweep has seen.
type sight struct {
	began  time.Time
	stored int       // events stored before it
	head   time.Time // the newest row of the first page
	whole  bool      // the first page is the whole list
	newest time.Time // of all rows, of all sweeps
	rows   bool      // there were rows
	met    bool      // there was a row that was known before the sweep
}

// sweep reads what may be new, and a few pages of the rest. It returns how many events it
// stored.
func (r *run[T]) sweep(ctx context.Context) (stored int, err error) {
	if r.state.At.IsZero() {
		if err := r.start(ctx); err != nil {
			return 0, err
		}
	}
	r.seen = sight{began: time.Now(), stored: r.stored, newest: r.seen.newest}
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
	if err := r.learn(ctx, m.At, nil); err != nil {
		return err
	}
	// A mark in the future, by a wrong clock or by mistake, would hide every row until then.
	now := time.Now()
	if m.CompleteThrough.IsZero() {
		m.Since = r.Since
	}
	if m.WatchedSince.IsZero() {
		m.WatchedSince = now
	}
	m.At, m.CompleteThrough, m.Since = earlier(m.At, now), earlier(m.CompleteThrough, now), earlier(m.Since, now)
	r.since, r.state, r.marked, r.moved = m.Since, m, m, m.CompleteThrough
	r.believed = m.CompleteThrough.Add(4 * r.Overlap) // a mark is behind what is known by about as much
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

// look takes a page and returns the rows to publish, in its room, and how many rows are new
// to us. What another sweeper has published is new, too: it may have died before it published
// what is older.
func (r *run[T]) look(rows []Row[T], when asked) (unknown []Row[T], news int) {
	for _, row := range rows {
		r.seen.newest = later(r.seen.newest, row.At)
	}
	others := len(r.others)
	unknown, met := r.take(rows, when)
	r.seen.rows, r.seen.met = r.seen.rows || len(rows) > 0, r.seen.met || met
	return unknown, len(unknown) + others - len(r.others)
}

// follow goes on with a reading until it is done, or enough says so after a page. It reads
// the next page while one is published.
func (r *run[T]) follow(ctx context.Context, reading *reading, enough func(news int, newest time.Time) bool) error {
	ctx, stop := context.WithCancel(ctx)
	var ahead sync.WaitGroup
	defer ahead.Wait()
	defer stop()
	when := r.ask()
	page, err := r.page(ctx, reading.asked)
	for {
		if err != nil {
			return err
		}
		keys, times := make([]uint64, len(page.Rows)), make([]time.Time, 0, len(page.Rows))
		for i, row := range page.Rows {
			if keys[i] = row.Key; !row.At.IsZero() {
				times = append(times, row.At)
			}
		}
		unknown, news := r.look(page.Rows, when)
		newest := reading.note(times)
		reading.take(keys, page.Total, page.Limit)
		reading.found += len(unknown)
		done := enough(news, newest) || reading.done()
		if when = r.ask(); !done {
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

// head reads from the first page on, to one that is wholly known.
func (r *run[T]) head(ctx context.Context) (size int, err error) {
	h := newReading(r.Limit, r.Overlap, time.Time{})
	first := r.known.empty() // then the rest is left to scan
	err = r.follow(ctx, h, func(news int, newest time.Time) bool {
		if h.pages <= 1 && r.seen.head.IsZero() {
			r.seen.head, r.state.Total = newest, h.total
		}
		return first || news == 0
	})
	if err == nil && h.state == whole {
		r.seen.whole = h.pages <= 1
		if err = r.collect(ctx, 0); err == nil {
			r.ended(h)
		}
	}
	return h.size, err
}

// tail reads from the last page back to one that is wholly known, and from there to the end:
// backwards a row is missed when another one is added before it, forwards when one is
// removed. It does so when the list has grown and head did not find by what, and now and
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
		when := r.ask()
		page, err := r.page(ctx, window{number, size})
		if err != nil {
			return err
		}
		unknown, news := r.look(page.Rows, when)
		if err := r.publish(ctx, unknown); err != nil {
			return err
		}
		switch {
		case page.Limit > 0 && page.Limit < size: // it begins elsewhere
			size = page.Limit
			last = (r.state.Total + size - 1) / size
			number, step = last+1, -1
		case step > 0 && len(page.Rows) < size, r.known.empty(), number > last && len(unknown) == 0:
			return nil // some upstreams answer the last page again for any page behind it
		case step < 0 && (news == 0 || number == 2):
			step = 1
		}
	}
	return nil
}

// rest goes on with the readings of what is not new. All together read pagesPerSecond, and
// as fast as they can until the list was read once; what the sink wants, as much again.
func (r *run[T]) rest(ctx context.Context) error {
	now := time.Now()
	if r.near == nil && r.state.Order == NewestFirst && now.Sub(r.rounds.near) >= r.roundEvery() {
		r.near, r.rounds.near = newReading(r.Limit, r.Overlap, r.state.CompleteThrough.Add(-r.Overlap)), now
	}
	if r.scan == nil && now.Sub(r.rounds.began) >= r.roundEvery() {
		r.scan, r.rounds.began = newReading(r.Limit, r.Overlap, r.scanBack(now)), now
	}
	pages := r.rounds.pages(now)
	if !r.firstRead() {
		pages = math.MaxInt
	}
	near, scan := pages, pages
	if r.near != nil && r.scan != nil {
		near = r.rounds.share(pages)
		scan = pages - near
	}
	if err := r.step(ctx, &r.near, near); err != nil {
		return err
	}
	if err := r.step(ctx, &r.proof, pages); err != nil {
		return err
	}
	return r.step(ctx, &r.scan, scan)
}

// fail ends a sweep that failed. Rows that were read and could not be stored are read again
// by other readings: those under way count them as read, so they are not complete any more.
func (r *run[T]) fail() {
	rest, _ := r.settle(0)
	if len(rest) == 0 && !r.lost {
		return
	}
	r.lost, r.near, r.proof = false, nil, nil
	if r.scan != nil && r.scan.done() {
		r.scan = nil
	}
	if r.scan != nil {
		r.scan.state = skipping
	}
}

// roundEvery is the shortest time from one reading of what is not new to the next.
func (r *run[T]) roundEvery() time.Duration { return min(retry.RoundEvery, roundSweeps*r.Interval) }

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

// step reads some pages of a reading, for a second at most: head must not wait. A reading
// that has ended is dropped.
func (r *run[T]) step(ctx context.Context, of **reading, pages int) error {
	reading := *of
	if reading == nil || pages == 0 {
		return nil
	}
	until := time.Now().Add(retry.SweepMin)
	err := r.follow(ctx, reading, func(_ int, newest time.Time) bool {
		pages--
		if reading.reached(newest, r.seen.newest) {
			reading.cut()
			return true
		}
		return pages <= 0 || !time.Now().Before(until)
	})
	if err != nil || !reading.done() {
		return err
	}
	if err := r.collect(ctx, 0); err != nil {
		return err
	}
	r.ended(reading)
	*of = nil
	return nil
}

// ended notes that a reading has ended.
func (r *run[T]) ended(reading *reading) {
	complete := reading.state == whole
	if complete && !reading.isCut {
		reading.Back = time.Time{}
	}
	// Near begins again and again while a longer reading is under way, and proves less.
	if complete && reading != r.near && !reading.Began.Before(r.reading.Began) {
		r.reading = reading.Reading
	}
	if reading != r.scan && !reading.Back.IsZero() || reading == r.scan && r.rounds.recent {
		return
	}
	if r.rounds.ended(reading, complete) {
		r.state.Order = reading.order(r.state.Order)
		r.debt.forgive(reading.Began, r.state.Total)
		clear(r.others)
	}
}

// finish ends a sweep that has read everything it had to.
func (r *run[T]) finish(ctx context.Context) error {
	now := time.Now()
	if r.seen.rows && !r.seen.met { // what was there before may have come and gone
		r.state.WatchedSince = now
		clear(r.fresh)
	}
	r.state.At = now
	r.state.New += r.stored - r.seen.stored
	r.state.CompleteThrough = later(earlier(r.through(), r.moved), r.state.CompleteThrough)
	r.state.Scanned = 0
	if r.scan != nil && now.Sub(r.rounds.began) > retry.LongRound {
		r.state.Scanned = r.scan.end
	}
	r.debt.note(r.state.Total, r.grown, now)
	r.grown = 0
	if r.markIsDue(now) {
		failpoint.Here(failpoint.BeforeMark)
		if err := r.again(ctx, func(ctx context.Context) error { return r.Sink.Mark(ctx, r.state) }); err != nil {
			return err
		}
		failpoint.Here(failpoint.AfterMark)
		r.marked, r.state.New = r.state, 0
	}
	if now.Sub(r.keptAt) > retry.MarkEvery {
		if err := r.readKept(ctx); err != nil {
			return err
		}
	}
	r.Logger.Debug().Int("new", r.stored-r.seen.stored).Int("total", r.state.Total).Time("complete_through", r.state.CompleteThrough).Msg("sweep: done")
	reading := r.reading
	reading.Missing = r.debt.missing > 0
	// A row of the future does not show that the list goes on.
	reading.Newest = earlier(reading.Newest, r.moved)
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
	case r.state.Order == NewestFirst, r.seen.whole:
		return r.seen.head
	default:
		return earlier(r.seen.newest, r.rounds.complete.Add(-r.Overlap)) // a row is late by at most Overlap
	}
}

// markIsDue reports whether a mark must be stored. An idle sweeper does so every hour: the
// stream drops old events, and a list without a mark is published again.
func (r *run[T]) markIsDue(now time.Time) bool {
	return !r.state.CompleteThrough.IsZero() && (r.state.New > 0 || !r.state.WatchedSince.Equal(r.marked.WatchedSince) ||
		r.state.CompleteThrough.After(r.marked.CompleteThrough) && !r.state.CompleteThrough.Before(r.seen.newest) ||
		r.state.CompleteThrough.Sub(r.marked.CompleteThrough) > time.Minute || now.Sub(r.marked.At) > retry.MarkEvery ||
		r.state.Total != r.marked.Total && now.Sub(r.marked.At) > time.Minute || // by a sweep that was paused
		r.state.Scanned > 0 && now.Sub(r.marked.At) > retry.LongRound)
}
