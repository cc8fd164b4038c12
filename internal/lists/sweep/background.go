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

// roundSweeps is the shortest time from one round to the next, in idle sweeps, where that is less than retry.RoundEvery.
const roundSweeps = 6

// background is what is read again: rows that may have changed, or that came late.
type background struct {
	near, scan     *reading // under way, back to Overlap, and of everything; nil if there is none
	nearAt, scanAt time.Time
	open           []uint64 // keys of rows that may change and were not seen since openAt, those to look at first last
	openAt         time.Time
	search         search
	complete       time.Time // since when all that was listed is stored; zero: nobody knows
	before         *reading  // the last complete reading; while one ends, the one before it
	depth          int       // rows at which readings end in front of what the total says; 0 if they do not
	depthAt        time.Time // when the first of these readings began
	paid           time.Time // until when pages were taken
	turn           int       // whose the last page was
}

// rest goes on with what is read again: Pace pages a second together, unlimited until all was read once. It takes a while at
// most: head must not wait.
func (r *run[T]) rest(ctx context.Context) error {
	now, ordered := time.Now(), r.state.NewestFirst && !r.state.CompleteThrough.IsZero()
	if r.near == nil && ordered && now.Sub(r.nearAt) >= r.roundEvery() {
		r.near, r.nearAt = newReading(r.nearBack(now), r.Limit), now
	}
	if len(r.open) == 0 && ordered && r.Recent == 0 && now.Sub(r.openAt) >= r.roundEvery() {
		newer := func(a, b uint64) int { return r.known.open[a].at.Compare(r.known.open[b].at) }
		r.open, r.openAt = slices.SortedFunc(maps.Keys(r.known.open), newer), now
	}
	if r.scan == nil && r.size > 0 && (r.state.Scanned > 0 || now.Sub(r.scanAt) >= r.scanEvery()) {
		r.scan, r.scanAt = newReading(r.scanBack(now), r.Limit), now
		if r.state.Scanned > 0 { // by the poller that led before: what is in front of that is not read again
			r.scan.page, r.scan.skipped = r.state.Scanned/max(r.size, 1)+1, true
		}
	}
	until := now.Add(retry.SweepMin)
	if r.Pace > 0 {
		until = now.Add(max(retry.SweepMin, r.Interval))
	}
	if !r.firstRead() {
		return r.step(ctx, &r.scan, now.Add(max(retry.SweepMin, r.Interval/2)))
	}
	page := time.Duration(float64(time.Second) / cmp.Or(r.Pace, 1))
	r.paid = later(r.paid, now.Add(-max(10*page, r.Interval)))
	for read := true; read && !r.paid.Add(page).After(now) && time.Now().Before(until); r.paid = r.paid.Add(page) {
		var err error
		if read, err = r.readAgain(ctx); err != nil {
			return err
		}
	}
	return nil
}

// readAgain reads the page of whose turn it is, if there is anything to read.
func (r *run[T]) readAgain(ctx context.Context) (read bool, err error) {
	for range 3 {
		r.turn = (r.turn + 1) % 3
		switch {
		case r.turn == 0 && r.near != nil:
			return true, r.step(ctx, &r.near, time.Time{})
		case r.turn == 1 && r.scan != nil:
			return true, r.step(ctx, &r.scan, time.Time{})
		case r.turn == 2:
			if read, err := r.visit(ctx); read || err != nil {
				return read, err
			}
		}
	}
	return false, nil
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

// scanEvery is the shortest time from one scan to the next. Where new rows may be anywhere it is as short as can be.
func (r *run[T]) scanEvery() time.Duration {
	if r.firstRead() && r.state.NewestFirst {
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

// step reads pages of a reading until a time, and one at least. A reading that has ended is dropped.
func (r *run[T]) step(ctx context.Context, of **reading, until time.Time) error {
	w := *of
	if w == nil {
		return nil
	}
	err := r.follow(ctx, w, func() bool { return !time.Now().Before(until) })
	if err != nil || !w.done {
		return err
	}
	*of = nil
	switch {
	case w.skipped:
	case of == &r.scan || w.since.IsZero():
		r.ended(w)
	default:
		r.readLast.Store(w)
	}
	return nil
}

// ended notes that the list was read completely, and what was read is stored. Where rows are not added in front, the total shows
// none that is removed while another one is added: the row that moved to a page read before is only in the next reading.
func (r *run[T]) ended(of *reading) {
	if ordered, known := of.newestFirst(); known {
		r.state.NewestFirst = ordered
	}
	sure := of
	if !r.state.NewestFirst && of.pages > 1 {
		sure = r.before
	}
	if r.before = of; sure == nil {
		r.scanAt = time.Time{} // the one that makes it sure begins now
	} else {
		r.readLast.Store(sure)
		r.complete = sure.began
	}
	if r.anchorAt.Before(of.began) { // no head has come through meanwhile
		r.anchor(of)
	}
}

// search is for the page with a row, in a list that shows its newest rows first, by the times of the rows that it shows.
type search struct {
	tries     int
	at        int // page, from 0
	low, high int // it is from low on, and before high
}

// maxProbes is how many pages are read in search of a row: enough to bisect a list of ten million.
const maxProbes = 30

// visit reads a page where a row is looked for that may change. One that is not found is left to the scan.
func (r *run[T]) visit(ctx context.Context) (read bool, err error) {
	for len(r.open) > 0 {
		last := len(r.open) - 1
		row, ok := r.known.open[r.open[last]]
		missing := ok && row.seen.Before(r.openAt)
		if missing && r.search.tries < maxProbes {
			return true, r.look(ctx, row)
		}
		if missing {
			delete(r.known.open, r.open[last])
		}
		r.open, r.search = r.open[:last], search{at: r.search.at}
	}
	return false, nil
}

// look looks for a row where it was seen last, or near the one before.
func (r *run[T]) look(ctx context.Context, row openRow) error {
	s := &r.search
	if s.tries == 0 {
		s.high = math.MaxInt
		if !row.seen.IsZero() {
			s.at = max(0, r.state.Total-row.place) / max(r.size, 1)
		}
	}
	page, err := r.page(ctx, s.at+1)
	if err != nil {
		return err
	}
	place := placed(s.at*max(r.size, 1), page.Total)
	s.next(timesOf(page.Rows), row.at)
	if err := r.publish(ctx, page.Rows, place, 0); err != nil {
		return err
	}
	return r.pause(ctx, time.After(0), true)
}

// next says where to look for a row that was made at a time, by the times of the rows at the last place.
func (s *search) next(times []time.Time, at time.Time) {
	s.tries++
	step := 1 << (min(s.tries, 16) - 1)
	switch {
	case len(times) == 0 || at.After(slices.MaxFunc(times, time.Time.Compare)):
		s.high, s.at = s.at, s.at-step
	case at.Before(slices.MinFunc(times, time.Time.Compare)):
		s.low, s.at = s.at+1, s.at+step
	default: // it is here, or was published a little later than it was made
		s.at, s.tries = s.at+1, max(s.tries, maxProbes-1)
	}
	if s.low >= s.high {
		s.tries = maxProbes
	}
	if s.at < s.low || s.at >= s.high {
		s.at = (s.low + s.high) / 2
	}
}

// placed returns the places of a page's rows, whose first is at from: counted from the end, since the list grows at its beginning.
func placed(from, total int) func(i int) int {
	return func(i int) int { return total - from - i }
}
