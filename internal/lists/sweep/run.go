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
	readings
	state    Mark      // how far the list is known
	marked   Mark      // as it was stored last
	seen     sight     // what this sweep has seen
	tailedAt time.Time // when the tail was last read
	total    int       // rows of the list at the sweep before
	sweeping bool      // a sweep is under way, which counts what is stored
}

// readings are the readings of rows that are not new.
type readings struct {
	reading Reading  // the last complete one
	near    *reading // under way, back to Overlap; nil if there is none
	scan    *reading // under way, of everything; nil if there is none
	rounds  rounds
}

// sight is what one sweep has seen.
type sight struct {
	began  time.Time
	stored int       // events stored before it
	head   time.Time // the newest row of the first page
	whole  bool      // the first page is the whole list
	newest time.Time // of all rows, of all sweeps
}

// sweep reads what may be new, and a few pages of the rest. It returns how many events it stored.
func (r *run[T]) sweep(ctx context.Context) (stored int, err error) {
	if !r.started() {
		if err := r.start(ctx); err != nil {
			return 0, err
		}
	}
	r.sweeping = true
	r.number++
	defer func() { r.sweeping = false }()
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

func (r *run[T]) started() bool { return !r.state.At.IsZero() }

// start continues from the last mark. It reads first: a sweeper that cannot must not take the leadership from one that can.
func (r *run[T]) start(ctx context.Context) error {
	if _, err := r.page(ctx, window{1, r.Limit}); err != nil {
		return err
	}
	return r.lead(ctx)
}

// lead takes the leadership, and learns what was published.
func (r *run[T]) lead(ctx context.Context) error {
	m, err := r.Sink.LastMark(ctx)
	if err != nil {
		return fmt.Errorf("sweep: read the last mark: %w", err)
	}
	if err := r.learn(ctx, m.At, false); err != nil {
		return err
	}
	// A mark in the future, by a wrong clock or by mistake, would hide every row until then.
	now := time.Now()
	if m.CompleteThrough.IsZero() {
		m.Since = r.Since
	}
	m.At, m.CompleteThrough, m.Since = earlier(m.At, now), earlier(m.CompleteThrough, now), earlier(m.Since, now)
	r.since, r.state, r.marked, r.moved = m.Since, m, m, m.CompleteThrough
	r.believed = later(r.believed, m.CompleteThrough.Add(4*r.Overlap)) // a mark is behind what is known by about as much
	r.state.At, r.state.New = now, 0
	if m.Scanned > 0 {
		r.scan, r.rounds.began = r.newReading(time.Time{}), now
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

// look takes a page and returns the rows to publish, in its room, and how many count as new. Rows
// that another sweeper published do: it may have died before it published older ones. See unproven.
func (r *run[T]) look(rows []Row[T]) (unknown []Row[T], news int) {
	for _, row := range rows {
		r.seen.newest = later(r.seen.newest, row.At)
		if r.isUnproven(row.ID) {
			news++
		}
	}
	others := len(r.others)
	unknown = r.take(rows)
	return unknown, news + len(unknown) + others - len(r.others)
}

// follow goes on with a reading until done, or enough says so, reading the next page while one is published.
func (r *run[T]) follow(ctx context.Context, reading *reading, enough func(news int, newest time.Time) bool) error {
	ctx, stop := context.WithCancel(ctx)
	var ahead sync.WaitGroup
	defer ahead.Wait()
	defer stop()
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
		unknown, news := r.look(page.Rows)
		newest := reading.note(times)
		reading.take(keys, page.Total, page.Limit)
		reading.found += len(unknown)
		done := enough(news, newest) || reading.done()
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
		if err := r.serve(ctx); err != nil {
			return err
		}
		ahead.Wait()
	}
}

// finish ends a sweep that has read everything it had to.
func (r *run[T]) finish(ctx context.Context) error {
	now := time.Now()
	r.prove()
	r.state.At = now
	r.state.New += r.stored - r.seen.stored
	r.state.CompleteThrough = later(earlier(r.through(), r.moved), r.state.CompleteThrough)
	r.state.Scanned = 0
	if r.scan != nil && now.Sub(r.rounds.began) > retry.LongRound {
		r.state.Scanned = r.scan.end
	}
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
	r.Logger.Debug().Int("new", r.stored-r.seen.stored).Int("total", r.state.Total).
		Time("complete_through", r.state.CompleteThrough).Msg("sweep: done")
	return r.again(ctx, func(ctx context.Context) error {
		return r.Sink.Swept(ctx, Swept{CompleteThrough: r.state.CompleteThrough, ReadAt: r.reading.Began})
	})
}

// through returns how far the list is published; zero if that is unknown.
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

// markIsDue reports whether a mark must be stored: when idle once an hour, since the stream drops old events.
func (r *run[T]) markIsDue(now time.Time) bool {
	return !r.state.CompleteThrough.IsZero() && (r.state.New > 0 ||
		r.state.CompleteThrough.After(r.marked.CompleteThrough) && !r.state.CompleteThrough.Before(r.seen.newest) ||
		r.state.CompleteThrough.Sub(r.marked.CompleteThrough) > time.Minute || now.Sub(r.marked.At) > retry.MarkEvery ||
		r.state.Total != r.marked.Total && now.Sub(r.marked.At) > time.Minute || // by a sweep that was paused
		r.state.Scanned > 0 && now.Sub(r.marked.At) > retry.LongRound)
}
