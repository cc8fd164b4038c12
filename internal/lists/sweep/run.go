package sweep

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"errand/internal/failpoint"
	"errand/internal/retry"
)

type run[T any] struct {
	*Sweeper[T]
	published
	anchored
	background
	underWay []batch[T] // oldest first
	state    Mark       // how far the list is known
	marked   Mark       // as it was stored last
	told     int        // events stored before the last mark
	followed time.Time  // when a standby learned what was published
	size     int        // rows of the list's first page
	newest   time.Time  // row of all that were read
}

// sweep reads what may be new, and a few pages of the rest. It returns how many events it stored.
func (r *run[T]) sweep(ctx context.Context) (stored int, err error) {
	before := r.stored
	if err = r.head(ctx); err == nil {
		err = r.rest(ctx)
	}
	if err != nil {
		return 0, err
	}
	return r.stored - before, r.finish(ctx)
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
	if m.Since.After(now) {
		m.Since = time.Time{}
	}
	if m.CompleteThrough.IsZero() {
		m.Since = later(m.Since, earlier(r.Since, now))
	}
	m.At, m.CompleteThrough = earlier(m.At, now), earlier(m.CompleteThrough, now)
	r.since = later(r.since, m.Since)
	r.state, r.marked, r.told, r.background, r.anchored = m, m, r.stored, background{}, anchored{listed: m.Total}
	return nil
}

// firstRead reports whether the list was read to its end at least once.
func (r *run[T]) firstRead() bool {
	return !r.state.CompleteThrough.IsZero() || !r.complete.IsZero()
}

func (r *run[T]) page(ctx context.Context, number int) (Page[T], error) {
	return retry.Read(ctx, nil, r.Policy, func(ctx context.Context) (Page[T], error) {
		page, err := r.List.Page(ctx, number, r.Limit)
		if err != nil && ctx.Err() == nil && r.Upstream() != "" { // the last of the tries may be minutes away
			r.say(err)
		}
		return page, err
	})
}

// follow goes on with a reading until it is done, or enough says so. While a page is published the next one is read, and the events
// of two pages may be on their way.
func (r *run[T]) follow(ctx context.Context, w *reading, enough func() bool) error {
	ctx, stop := context.WithCancel(ctx)
	var ahead sync.WaitGroup
	defer ahead.Wait()
	defer stop()
	w.jump(r.state.Total)
	page, err := r.page(ctx, w.page)
	for {
		if err != nil {
			return cmp.Or(r.publish(ctx, nil, nil, 0), err)
		}
		from := w.page
		r.note(w, page)
		rows, place := page.Rows, placed((from-1)*w.size, page.Total)
		ends, most := enough() || w.done, 0
		read := make(chan time.Time)
		if !ends {
			most = 1
			ahead.Go(func() { defer close(read); page, err = r.page(ctx, w.page) })
		}
		failpoint.Here(failpoint.Page)
		if err := r.publish(ctx, rows, place, most); err != nil {
			return err
		}
		if ends {
			return r.believe(ctx, w)
		}
		if err := r.pause(ctx, read, true); err != nil {
			return err
		}
		ahead.Wait()
	}
}

// note notes a page that a reading has asked for. A row from the future may be as old as Overlap.
func (r *run[T]) note(w *reading, page Page[T]) {
	keys := make([]uint64, len(page.Rows))
	for i, row := range page.Rows {
		keys[i] = row.ID.Key()
	}
	joins := w.take(keys, page.Total)
	now, newest, latest, times := time.Now(), time.Time{}, time.Time{}, timesOf(page.Rows)
	for _, at := range times {
		if joins {
			w.rows.note(at)
		}
		latest = later(latest, at)
		if at.After(now) {
			at = now.Add(-r.Overlap)
		}
		newest = later(newest, at)
	}
	r.newest = later(r.newest, newest)
	if slices.SortFunc(times, time.Time.Compare); joins && len(times) > 0 {
		w.medians.note(times[len(times)/2])
	}
	if w.pages == 1 {
		w.newest, w.latest = newest, latest
	}
	switch {
	case w.done:
		w.since = time.Time{} // at the list's end: it was a whole one
	case joins && !w.rereads() && r.state.NewestFirst && !newest.IsZero():
		isNew := func(row Row[T]) bool { return !row.At.Before(r.since) && r.known.stored(row.ID).IsZero() }
		w.done = newest.Before(w.since.Add(-r.Overlap)) && !slices.ContainsFunc(page.Rows, isNew) // however old it says it is
	}
}

// believe decides whether a reading that has ended was complete. Empty pages are the end of the list, though its total says more,
// if they are found again, not nearer. Where a total that stands still may hide that the list drops rows in front and grows
// behind, or no total says where it ends, the first page must begin with the same row when it is read again.
func (r *run[T]) believe(ctx context.Context, w *reading) error {
	switch {
	case !w.done:
		return nil
	case !w.short:
		r.depth = 0
	case r.depth == 0 || w.end < r.depth:
		r.depth, r.depthAt, w.skipped = w.end, w.began, true
	default:
		w.skipped = w.skipped || w.began.Sub(r.depthAt) < r.roundEvery()
	}
	if ordered, _ := w.newestFirst(); ordered && !w.repeated || w.page < 2 || len(w.first) == 0 {
		return nil
	}
	page, err := r.page(ctx, 1)
	w.skipped = w.skipped || err != nil || len(page.Rows) == 0 || page.Rows[0].ID.Key() != w.first[0]
	return err
}

// finish ends a sweep that has read everything it had to.
func (r *run[T]) finish(ctx context.Context) error {
	now := time.Now()
	r.state.At = now
	r.state.New = r.stored - r.told
	if !r.state.NewestFirst && !r.complete.IsZero() { // a row is late by at most Overlap
		r.state.CompleteThrough = later(r.state.CompleteThrough, earlier(r.newest, r.complete.Add(-r.Overlap)))
	}
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
	r.Logger.Debug().Int("new", r.state.New).Int("total", r.state.Total).
		Time("complete_through", r.state.CompleteThrough).Msg("sweep: done")
	return r.again(ctx, func() error { return r.Sink.Swept(ctx, r.state.CompleteThrough) })
}

// markIsDue reports whether a mark must be stored: if there is news, and when idle now and then, as the stream drops old events.
func (r *run[T]) markIsDue(now time.Time) bool {
	age := now.Sub(r.marked.At)
	return !r.state.CompleteThrough.IsZero() && (r.marked.CompleteThrough.IsZero() || age > retry.MarkEvery || age >= retry.MarkMin &&
		(r.state.New > 0 || r.state.CompleteThrough.After(r.marked.CompleteThrough)) ||
		r.state.Scanned > 0 && age > retry.LongRound)
}

// anchored is what a head needs to know of those before. The anchor itself is in the mark.
type anchored struct {
	anchorAt time.Time           // when the reading began that began with it; zero if another sweeper's did
	listed   int                 // rows of the list then
	heading  *reading            // under way; one that failed goes on
	left     map[uint64]struct{} // rows of the anchor that it has not met
	held     time.Time           // time of the newest row that a head has shown; zero if that is covered
	heldAt   time.Time           // when it had
}

// maxAnchor is how many rows an anchor has at most.
const maxAnchor = 100

// head reads what is new: from the first page on until it has met the anchor, however many pages that takes. The anchor
// is the first rows of the last head or whole reading that came through; what was added to the list since is in front of them.
//
// It is met when half of its rows were seen: some may be gone, and some may have been moved to the front. Where it is not met as
// far back as all is published, or, in another order, within as many pages as rows were added since, it is lost: the scan finds another.
func (r *run[T]) head(ctx context.Context) error {
	anchor := r.state.Anchor
	if r.heading == nil {
		r.heading, r.left = newReading(r.state.CompleteThrough, r.Limit), map[uint64]struct{}{}
		for _, key := range anchor {
			r.left[key] = struct{}{}
		}
	}
	h, met := r.heading, false
	err := r.follow(ctx, h, func() bool {
		if h.pages == 1 {
			r.state.Total, r.size = h.total, h.size
		}
		for _, key := range h.last {
			delete(r.left, key)
		}
		if len(anchor) == 0 {
			met = !r.firstRead() // the scan reads the rest
		} else {
			met = !h.rereads() && len(r.left) <= len(anchor)/2
		}
		elsewhere := !r.state.NewestFirst && h.pages > 1+max(0, h.total-r.listed)/max(h.size, 1)
		return met || elsewhere && !h.rereads()
	})
	if err != nil {
		return err
	}
	r.heading = nil
	whole := h.done && h.since.IsZero()
	if h.skipped || !met && !whole {
		if !h.skipped && r.scan == nil { // the anchor is lost: the scan that finds another one begins now
			r.scanAt = time.Time{}
		}
		return nil
	}
	if whole {
		r.ended(h)
	}
	if r.state.NewestFirst || whole && h.pages == 1 {
		r.state.CompleteThrough = later(r.state.CompleteThrough, r.through(h))
	}
	r.anchor(h)
	return nil
}

// through is the time up to which heads have shown every row, and holds back the newest row's time: the next rows may have the same,
// if that was within the last minute. Where the list's clock is ahead, a time counts when it is past by ours.
func (a *anchored) through(h *reading) time.Time {
	through := h.newest
	if h.began.Sub(through) < retry.RoundEvery {
		through = through.Add(-time.Millisecond)
	}
	if !a.held.IsZero() && !a.held.After(h.began) && h.began.Sub(a.heldAt) >= time.Second { // rows may have the same time
		if through = later(through, a.held); !a.held.Equal(h.latest) {
			a.held = time.Time{}
		}
	}
	if a.held.IsZero() || h.latest.Before(a.held) {
		a.held, a.heldAt = h.latest, time.Now()
	}
	return through
}

// anchor makes the rows with which a reading began the anchor.
func (r *run[T]) anchor(of *reading) {
	rows := slices.Clone(of.first[:min(len(of.first), maxAnchor)])
	slices.Sort(rows)
	if rows = slices.Compact(rows); len(rows) > 0 { // a list may show a row twice
		r.state.Anchor, r.anchorAt, r.listed = rows, of.began, of.listed
	}
}
