package sweep

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"
	"time"

	"errand/internal/retry"
)

const (
	// roundSweeps is the shortest time from one round to the next, in idle sweeps, where that
	// is less than retry.RoundEvery.
	roundSweeps = 6
	// maxPages is how many pages of it one sweep reads, where that takes no longer than the pause between two.
	maxPages = 10
	// maxShort is how many rounds that found nothing may miss rows that the list counts: it may count what no page shows.
	maxShort = 3
)

// place is how many rows a list had at a time.
type place struct {
	at   time.Time
	rows int
}

// background is what is read again: rows that may have changed, or that came late.
type background struct {
	near, scan     *reading // under way, back to Overlap, and of everything; nil if there is none
	nearAt, scanAt time.Time
	nearFrom       place    // where near begins in a list that shows its oldest rows first, which grows behind it
	nearNext       place    // where it will
	scanned        int      // rows that the list had when scan began
	open           []uint64 // keys of rows that may change and were not seen since openAt, those to look at first last
	openAt         time.Time
	probe          probe
	complete       time.Time // when the last complete reading of the list began; zero if there was none
	oldest         time.Time // row of it
	short          int       // in a row that were not complete and found nothing
	paid           time.Time // until when pages were taken
	credit         float64   // pages that may be read
	turn           int       // of whom the next odd page is
}

// budget is how many pages may be read now, of so many a second.
func (b *background) budget(now time.Time, pace float64, most int) int {
	b.credit = min(b.credit+now.Sub(b.paid).Seconds()*pace, float64(most))
	b.paid = now
	n := int(b.credit)
	b.credit -= float64(n)
	return n
}

// rest goes on with what is read again: Pace pages a second together, unlimited until all was read once.
func (r *run[T]) rest(ctx context.Context) error {
	now := time.Now()
	if r.near == nil && r.nearHasPlace() && now.Sub(r.nearAt) >= r.roundEvery() {
		r.near, r.nearAt = r.newReading(r.nearBack(now)), now
		if r.state.Order == OldestFirst {
			r.near.shape, r.near.resumed = r.shape, true
			r.near.resume(r.nearPlace(now))
		}
	}
	grown := r.state.Order == Unordered && r.state.Total > r.scanned // by rows that may be anywhere
	if r.scan == nil && (grown || now.Sub(r.scanAt) >= r.scanEvery()) {
		r.scan, r.scanAt, r.scanned = r.newReading(r.scanBack(now)), now, r.state.Total
	}
	if len(r.open) == 0 && r.Recent == 0 && r.state.Order != Unordered && now.Sub(r.openAt) >= r.roundEvery() {
		r.open, r.openAt = r.known.mayChange(), now
	}
	pages := r.budget(now, r.pace(), max(maxPages, int(r.pace()*r.Interval.Seconds())))
	parts := make([]func(pages int) (left int, err error), 0, 3)
	if len(r.open) > 0 {
		parts = append(parts, func(pages int) (int, error) { return r.visit(ctx, pages) })
	}
	for _, of := range []**reading{&r.near, &r.scan} {
		if *of != nil {
			parts = append(parts, func(pages int) (int, error) { return r.step(ctx, of, pages) })
		}
	}
	r.turn++
	for i, part := range parts {
		rest := len(parts) - i
		share := (pages + r.turn%rest) / rest
		if rest == 1 && r.scan != nil && !r.firstRead() {
			share = math.MaxInt
		}
		left, err := part(share)
		if err != nil {
			return err
		}
		pages -= share - left
	}
	return nil
}

// nearHasPlace reports whether it is known where the newest rows are.
func (r *run[T]) nearHasPlace() bool {
	return r.state.Order == NewestFirst || r.state.Order == OldestFirst && r.shape.size > 0
}

// roundEvery is the shortest time from one reading of what is not new to the next.
func (r *run[T]) roundEvery() time.Duration {
	if r.Recent > 0 {
		return r.Interval
	}
	return min(retry.RoundEvery, roundSweeps*r.Interval)
}

// nearBack is how far back near goes, from the newest row: as far as rows may be late, or Recent, so that a list that stands still
// is left alone.
func (r *run[T]) nearBack(now time.Time) time.Time {
	if r.Recent > 0 {
		return now.Add(-max(r.Recent, r.Overlap))
	}
	return r.state.CompleteThrough.Add(-r.Overlap)
}

// nearPlace is where near begins in a list that shows its oldest rows first.
func (r *run[T]) nearPlace(now time.Time) int {
	end := place{now, r.end}
	switch {
	case r.nearNext.at.IsZero():
		r.nearFrom, r.nearNext = end, end
	case now.Sub(r.nearNext.at) >= max(r.Recent, r.Overlap):
		r.nearFrom, r.nearNext = r.nearNext, end
	}
	return r.nearFrom.rows
}

// scanEvery is the shortest time from one scan to the next. Where new rows may be anywhere, or all are as recent as what is
// read again often, it is as often.
func (r *run[T]) scanEvery() time.Duration {
	if r.firstRead() && r.state.Order != Unordered && !r.oldest.After(time.Now().Add(-r.Recent)) {
		return max(r.roundEvery(), r.RoundEvery)
	}
	return r.roundEvery()
}

// scanBack is how far back the scan goes: what is older counts as published, and will not change. Of a list whose rows may
// change at any age it is all.
func (r *run[T]) scanBack(now time.Time) time.Time {
	if r.Recent > 0 || r.since.IsZero() {
		return time.Time{}
	}
	return earlier(r.since, now.Add(-watchOpen))
}

func (r *run[T]) pace() float64 { return cmp.Or(r.Pace, 1) }

// step reads some pages of a reading, for a while at most: head must not wait. A reading that has ended is dropped.
func (r *run[T]) step(ctx context.Context, of **reading, pages int) (left int, err error) {
	reading := *of
	if pages == 0 {
		return 0, nil
	}
	until := time.Now().Add(r.stepTime())
	err = r.follow(ctx, reading, func(_ []uint64, newest time.Time) bool {
		pages--
		reading.isCut = r.state.Order == NewestFirst && !newest.IsZero() && newest.Before(reading.Back.Add(-r.Overlap))
		return reading.isCut || pages <= 0 || !time.Now().Before(until)
	})
	if err != nil || !reading.isCut && !reading.done() {
		return pages, err
	}
	if err := r.collect(ctx, 0); err != nil {
		return pages, err
	}
	if reading.isCut && !reading.skipped {
		reading.state = whole
	}
	r.ended(reading)
	if reading == r.near && r.Recent > 0 && r.state.Order == OldestFirst &&
		earlier(reading.oldest, r.nearFrom.at).After(reading.Back) { // it began too late: this poller leads for less than that
		r.nearFrom.rows = max(0, r.nearFrom.rows-2*(r.end-r.nearFrom.rows)-4*r.shape.size)
	}
	*of = nil
	return pages, nil
}

// stepTime is how long one goes on: a second or, with a Pace, Interval if that is longer.
func (r *run[T]) stepTime() time.Duration {
	if r.Pace == 0 {
		return retry.SweepMin
	}
	return max(retry.SweepMin, r.Interval)
}

// ended notes the end of a reading whose rows are stored.
func (r *run[T]) ended(of *reading) {
	if !of.isCut {
		of.Back = time.Time{}
	}
	if of.state == whole {
		last := of.Reading
		r.readLast.Store(&last)
	}
	if of == r.near && (of.isCut || of.resumed) {
		return
	}
	switch {
	case of.state == whole:
		r.short = 0
	case of.found > 0, of.resumed:
		r.short = 0
		return
	default:
		if r.short++; r.short < maxShort {
			return
		}
	}
	r.complete, r.oldest = of.Began, of.oldest
	before := r.state.Order
	r.state.Order = of.order(before)
	if (r.state.Order == OldestFirst) != (before == OldestFirst) || r.anchorAt.Before(of.Began) {
		r.anchor(of) // no head has come through meanwhile, or it began at the other end
	}
}

// probe is the search for the row whose turn it is, among those that may change.
type probe struct {
	tries     int
	at        int // where it is looked for
	low, high int // it is from low on, and before high; -1: unknown
}

// maxProbes is how many pages are read in search of a row: enough to bisect a list of ten million.
const maxProbes = 20

// visit reads pages where rows were that may change. One that is not found is left to the scan.
func (r *run[T]) visit(ctx context.Context, pages int) (left int, err error) {
	for pages > 0 && len(r.open) > 0 {
		key := r.open[len(r.open)-1]
		row, ok := r.known.open[key]
		found, gaveUp := !ok || !row.seen.Before(r.openAt), r.probe.tries >= maxProbes
		if found || gaveUp {
			if !found {
				delete(r.known.open, key)
			}
			r.open, r.probe = r.open[:len(r.open)-1], probe{at: r.probe.at}
			continue
		}
		if r.probe.tries == 0 {
			r.probe = probe{at: r.probe.at, low: -1, high: -1}
			if !row.seen.IsZero() { // else it is near the one before
				r.probe.at = r.place(row.place, r.state.Total)
			}
		}
		pages--
		size := max(r.shape.size, 1)
		ask := window{max(0, r.probe.at)/size + 1, size}
		page, err := r.page(ctx, ask)
		if err != nil {
			return pages, err
		}
		r.probe.next(timesOf(page.Rows), row.at, ask, r.state.Order)
		if err := r.publish(ctx, r.unknown(page.Rows, r.placed(ask.from(), page.Total))); err != nil {
			return pages, err
		}
		if err := r.pause(ctx, 0, true); err != nil {
			return pages, err
		}
	}
	return pages, nil
}

// next says where to look for a row that was made at a time, by the times of the rows where it was looked for.
func (p *probe) next(times []time.Time, at time.Time, asked window, o Order) {
	p.tries++
	newer := len(times) > 0 && at.After(slices.MaxFunc(times, time.Time.Compare))
	older := len(times) > 0 && at.Before(slices.MinFunc(times, time.Time.Compare))
	step := asked.limit << min(p.tries, 16)
	switch {
	case len(times) == 0, newer && o == NewestFirst, older && o == OldestFirst:
		p.high, p.at = asked.from(), asked.from()-step
	case newer || older:
		p.low, p.at = asked.to(), asked.from()+step
	default: // or it is there
		p.tries = maxProbes
	}
	switch {
	case p.low >= 0 && p.high >= 0:
		if p.at = (p.low + p.high) / 2; p.low >= p.high {
			p.tries = maxProbes
		}
	case p.high == 0:
		p.tries = maxProbes
	}
}

// place is where a row is in the list, or the other way round: in a list that grows at its beginning it is counted from the end.
func (r *run[T]) place(at, total int) int {
	if r.state.Order == NewestFirst && total > 0 {
		return total - at
	}
	return at
}

// placed returns the places of a page's rows, whose first is at from.
func (r *run[T]) placed(from, total int) func(i int) int {
	return func(i int) int { return r.place(from+i, total) }
}

// mayChange are the keys of rows whose state may change, the newest last.
func (k *known) mayChange() []uint64 {
	return slices.SortedFunc(maps.Keys(k.open), func(a, b uint64) int { return k.open[a].at.Compare(k.open[b].at) })
}
