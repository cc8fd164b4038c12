package sweep

import (
	"context"
	"slices"
	"time"
)

// anchored is what a head needs to know of those before. The anchor itself is in the mark.
type anchored struct {
	anchorAt time.Time // when the reading began that began with it; zero if another sweeper's did
	end      int       // rows up to it, in a list that shows its oldest rows first
	shape    shape     // of the pages of the last head that came through
	part     *part     // of a head that failed
}

// part is what a failed head has read: from its first page on, and how far.
type part struct {
	first []uint64
	walk  walk
}

// maxAnchor is how many rows an anchor has at most.
const maxAnchor = 100

// head reads what is new: from the first page on until it has met the anchor, however many pages that takes. The anchor
// is the rows with which the last head began that came through; what was added to the list since is in front of them. A
// list that shows its oldest rows first is read from the anchor, its last rows then, to the end.
//
// It is met when half of its rows were seen: some may be gone, and some may have been moved to the front.
func (r *run[T]) head(ctx context.Context) error {
	h, left := r.newReading(time.Time{}), set(r.state.Anchor)
	anchored, half := len(left) > 0, len(left)/2
	forward := anchored && r.state.Order == OldestFirst
	if forward {
		if r.shape.size == 0 {
			if err := r.follow(ctx, h, func([]uint64, time.Time) bool { return true }); err != nil {
				return err
			}
			r.shape = h.shape
			h = r.newReading(time.Time{})
		}
		h.join(r.end, r.state.Anchor, r.shape)
	}
	var through time.Time
	pages, jumped, lost := 0, r.part == nil || forward, false
	err := r.follow(ctx, h, func(keys []uint64, newest time.Time) bool {
		if pages++; pages == 1 || forward {
			through, r.state.Total = later(through, newest), h.total
		}
		if h.count.lost == 0 { // or rows are missing before this page
			for _, key := range keys {
				delete(left, key)
			}
		}
		switch {
		case forward, h.count.lost > 0:
			return false
		case !anchored:
			return !r.firstRead() // the rest is left to the scan
		case !jumped:
			jumped = h.jump(r.part, keys)
		}
		met := len(left) <= half
		lost = !met && r.state.Order == NewestFirst && !newest.IsZero() && newest.Before(r.state.CompleteThrough.Add(-r.Overlap))
		return met || lost
	})
	if err == nil {
		err = r.collect(ctx, 0)
	}
	switch {
	case err != nil:
		if jumped && !forward && len(h.first) > 0 && !h.skipped {
			r.part = &part{h.first, h.walk}
		}
		return err
	case forward && h.skipped && h.total > 0: // rows before the anchor are gone
		r.end = min(r.end, h.total)
		return nil
	case lost:
		return nil // the scan finds another anchor
	case h.skipped, forward && h.state == short && r.short < maxShort, anchored && !forward && h.state == short && len(left) > half:
		return nil // it may have missed rows
	}
	r.part, r.shape, r.seen.through = nil, h.shape, through
	if h.state == whole && !forward && (!anchored || len(left) < len(r.state.Anchor)) {
		r.seen.whole = pages == 1
		r.ended(h)
	}
	r.anchor(h)
	return nil
}

// anchor makes the rows the anchor with which a reading began, or ended if the list shows its oldest rows first.
func (r *run[T]) anchor(of *reading) {
	rows := of.first[:min(len(of.first), maxAnchor)]
	if r.state.Order == OldestFirst {
		rows = of.last[max(0, len(of.last)-maxAnchor):]
	}
	if len(rows) > 0 {
		r.state.Anchor, r.anchorAt, r.end = slices.Clone(rows), of.Began, of.end
	}
}

// jump goes on where an earlier walk ended, when half of the rows are met with which that one began: all between was read.
func (w *walk) jump(p *part, keys []uint64) bool {
	met, shift := 0, 0
	for i, key := range keys {
		if at := slices.Index(p.first, key); at >= 0 {
			met, shift = met+1, w.from+i-at
		}
	}
	if 2*met < len(p.first) || w.skipped {
		return false
	}
	if w.total > 0 && p.walk.total > 0 { // it grew while that one read, too
		shift = w.total - p.walk.total
	}
	total := w.total
	*w = p.walk
	w.join(w.end+shift, w.last, w.shape)
	w.total = total
	return true
}

func set(keys []uint64) map[uint64]struct{} {
	all := make(map[uint64]struct{}, len(keys))
	for _, key := range keys {
		all[key] = struct{}{}
	}
	return all
}
