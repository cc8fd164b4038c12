package sweep

import (
	"context"
	"slices"
	"time"

	"errand/internal/retry"
)

// anchored is what a head needs to know of those before. The anchor itself is in the mark.
type anchored struct {
	anchorAt time.Time           // when the reading began that began with it; zero if another sweeper's did
	listed   int                 // rows of the list then
	heading  *reading            // under way; one that failed goes on
	left     map[uint64]struct{} // rows of the anchor that it has not met
	held     time.Time           // of the newest row that a head has shown; zero if that is covered
	heldAt   time.Time           // when it had
}

// maxAnchor is how many rows an anchor has at most.
const maxAnchor = 100

// head reads what is new: from the first page on until it has met the anchor, however many pages that takes. The anchor
// is the rows with which the last head began that came through; what was added to the list since is in front of them.
//
// It is met when half of its rows were seen: some may be gone, and some may have been moved to the front. Where it is not met as
// far back as all is published, or so many rows were added to a list in another order, it is lost, and the scan finds another one.
func (r *run[T]) head(ctx context.Context) error {
	anchor := r.state.Anchor
	if r.heading == nil {
		r.heading, r.left = newReading(r.state.CompleteThrough), map[uint64]struct{}{}
		for _, key := range anchor {
			r.left[key] = struct{}{}
		}
	}
	h, met := r.heading, false
	err := r.follow(ctx, h, func(keys []uint64) bool {
		if h.pages == 1 {
			r.state.Total, r.size = h.total, h.size
		}
		for _, key := range keys {
			delete(r.left, key)
		}
		if len(anchor) == 0 {
			met = !r.firstRead() // the scan reads the rest
		} else {
			met = !h.back() && len(r.left) <= len(anchor)/2
		}
		elsewhere := r.state.Order != NewestFirst && h.pages > 1+max(0, h.total-r.listed)/max(h.size, 1)
		return met || elsewhere && !h.back()
	})
	if err != nil {
		return err
	}
	r.heading = nil
	if err := r.collect(ctx, 0); err != nil {
		return err
	}
	whole := h.done && h.Back.IsZero()
	if h.skipped || !met && !whole {
		if !h.skipped && r.scan == nil { // the anchor is lost: the scan that finds another one begins now
			r.scanAt = time.Time{}
		}
		return nil
	}
	if whole {
		r.ended(h)
	}
	if r.state.Order == NewestFirst || whole && h.pages == 1 {
		r.state.CompleteThrough = later(r.state.CompleteThrough, r.through(h))
	}
	r.anchor(h)
	return nil
}

// second is the longest time for which rows of a list may have the same time.
const second = time.Second

// through is up to when no more rows were made than heads have shown. Those that come next may have the time of the newest, if that was
// just now. Where the list's clock is ahead, a time counts when it is past by ours.
func (a *anchored) through(h *reading) time.Time {
	through := h.newest
	if h.Began.Sub(through) < retry.RoundEvery {
		through = through.Add(-time.Millisecond)
	}
	if !a.held.IsZero() && !a.held.After(h.Began) && h.Began.Sub(a.heldAt) >= second {
		if through = later(through, a.held); !a.held.Equal(h.latest) {
			a.held = time.Time{}
		}
	}
	if a.held.IsZero() || h.latest.Before(a.held) {
		a.held, a.heldAt = h.latest, time.Now()
	}
	return through
}

// anchor makes the rows the anchor with which a reading began.
func (r *run[T]) anchor(of *reading) {
	rows := slices.Clone(of.first[:min(len(of.first), maxAnchor)])
	slices.Sort(rows)
	if rows = slices.Compact(rows); len(rows) > 0 { // a list may show a row twice
		r.state.Anchor, r.anchorAt, r.listed = rows, of.Began, of.total
	}
}
