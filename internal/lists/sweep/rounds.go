package sweep

import (
	"cmp"
	"context"
	"maps"
	"math"
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

// rounds are the scans around the whole list.
type rounds struct {
	began    time.Time     // the last one
	near     time.Time     // when the last reading of what is not older than Overlap began
	complete time.Time     // when the last complete one began; zero if there was none
	took     time.Duration // how long it took
	recent   bool          // the one under way is of the newer part only
	short    int           // in a row that were not complete and found nothing
	paid     time.Time     // until when pages were taken
	odd      bool          // who got the last odd page
	credit   float64       // pages that may be read
}

// pages is how many pages may be read now, of so many a second.
func (r *rounds) pages(now time.Time, pace float64, most int) int {
	r.credit = min(r.credit+now.Sub(r.paid).Seconds()*pace, float64(most))
	r.paid = now
	n := int(r.credit)
	r.credit -= float64(n)
	return n
}

// share returns the half of the pages that near gets; near and scan take turns with an odd one.
func (r *rounds) share(pages int) int {
	half := pages / 2
	if pages%2 == 1 {
		if r.odd = !r.odd; r.odd {
			half++
		}
	}
	return half
}

// ended notes the end of a round, and reports whether the list counts as read.
func (r *rounds) ended(reading *reading, complete bool) bool {
	switch {
	case complete:
		r.short = 0
	case reading.found > 0:
		r.short = 0
		return false
	default:
		if r.short++; r.short < maxShort {
			return false
		}
	}
	r.complete, r.took = reading.Began, time.Since(reading.Began)
	return true
}

// rest goes on with the readings of what is not new: Pace pages a second together, unlimited until all was read once.
func (r *run[T]) rest(ctx context.Context) error {
	now := time.Now()
	if r.near == nil && r.state.Order == NewestFirst && now.Sub(r.rounds.near) >= r.roundEvery() {
		r.near, r.rounds.near = r.newReading(r.nearBack(now)), now
	}
	if r.scan == nil && now.Sub(r.rounds.began) >= r.scanEvery() {
		r.scan, r.rounds.began = r.newReading(r.scanBack(now)), now
	}
	pages := r.rounds.pages(now, r.pace(), max(maxPages, int(r.pace()*r.Interval.Seconds())))
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
	return r.step(ctx, &r.scan, scan)
}

// fail ends a failed sweep. Readings under way counted rows that could not be stored: they are no longer complete.
func (r *run[T]) fail() {
	rest, _ := r.settle(0)
	if len(rest) == 0 && !r.lost {
		return
	}
	r.lost, r.near = false, nil
	if r.scan != nil && r.scan.done() {
		r.scan = nil
	}
	if r.scan != nil {
		r.scan.state = skipping
	}
}

// roundEvery is the shortest time from one reading of what is not new to the next.
func (r *run[T]) roundEvery() time.Duration {
	if r.Recent > 0 {
		return r.Interval
	}
	return min(retry.RoundEvery, roundSweeps*r.Interval)
}

// nearBack is how far back near goes: as far as rows may be late, or Recent, so that a list that stands still is left alone.
func (r *run[T]) nearBack(now time.Time) time.Time {
	if r.Recent > 0 {
		return now.Add(-max(r.Recent, r.Overlap))
	}
	return r.state.CompleteThrough.Add(-r.Overlap)
}

// scanEvery is the shortest time from one scan to the next. A list as recent as what is read again often is read as often.
func (r *run[T]) scanEvery() time.Duration {
	if r.firstRead() && (r.state.Order == NewestFirst || !r.reading.Oldest.After(time.Now().Add(-r.Recent))) {
		return max(r.roundEvery(), r.RoundEvery)
	}
	return r.roundEvery()
}

func (r *run[T]) pace() float64 { return cmp.Or(r.Pace, 1) }

// scanBack is how far back the next scan reads: nothing is published that is older than Since. While rows are watched whose state may
// change, every other scan of a long list reads only as far back as they can be; not of one that
// is read as seldom as it may be.
func (r *run[T]) scanBack(now time.Time) time.Time {
	back := r.state.Since
	r.rounds.recent = r.RoundEvery == 0 && !r.rounds.recent && len(r.known.open) > 0 && r.rounds.took > retry.LongRound &&
		r.state.Order == NewestFirst
	if r.rounds.recent {
		back = later(back, now.Add(-watchOpen))
	}
	return back
}

// step reads some pages of a reading, for a while at most: head must not wait. A reading that has ended is dropped.
func (r *run[T]) step(ctx context.Context, of **reading, pages int) error {
	reading := *of
	if reading == nil || pages == 0 {
		return nil
	}
	until := time.Now().Add(r.stepTime())
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

// stepTime is how long one goes on: a second or, with a Pace, Interval if that is longer.
func (r *run[T]) stepTime() time.Duration {
	if r.Pace == 0 {
		return retry.SweepMin
	}
	return max(retry.SweepMin, r.Interval)
}

func (r *run[T]) ended(reading *reading) {
	complete := reading.state == whole
	if complete && !reading.isCut {
		reading.Back = time.Time{}
	}
	if complete {
		last := reading.Reading
		r.readLast.Store(&last)
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
		maps.DeleteFunc(r.others, func(_ uint64, learned int) bool { return learned <= reading.learned })
	}
}
