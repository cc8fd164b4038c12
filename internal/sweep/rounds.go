package sweep

import (
	"time"

	"errand/internal/retry"
)

const (
	// pagesPerSecond is how fast a list that was read once is read again, on average.
	pagesPerSecond = 1
	// roundSweeps is the shortest time from one round to the next, in idle sweeps, where that
	// is less than retry.RoundEvery.
	roundSweeps = 6
	// maxPages is how many pages of it one sweep reads.
	maxPages = 10
	// maxShort is how many rounds in a row that found nothing may miss rows that the list
	// counts, until the list counts as read: it may count what no page shows.
	maxShort = 3
)

// rounds are the scans around the whole list.
type rounds struct {
	began    time.Time     // the last one
	near     time.Time     // when the last reading of what is not older than Overlap began
	complete time.Time     // when the last complete one began; zero: there was none
	took     time.Duration // how long it took
	recent   bool          // the one under way is of the newer part only
	short    int           // in a row that were not complete and found nothing
	paid     time.Time     // until when pages were taken
	odd      bool          // who got the last odd page
	credit   time.Duration // pages that may be read, a second each
}

// pages is how many pages may be read now.
func (r *rounds) pages(now time.Time) int {
	r.credit = min(r.credit+now.Sub(r.paid), maxPages*time.Second/pagesPerSecond)
	r.paid = now
	n := int(r.credit * pagesPerSecond / time.Second)
	r.credit -= time.Duration(n) * time.Second / pagesPerSecond
	return n
}

// share is the half of the pages that one of two readings gets; of an odd one each in turn.
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

// debt is how many rows the list counts and has not shown.
type debt struct {
	base    int // total when everything was known
	seen    int // rows seen since then
	missing int
	since   time.Time // when missing grew
	last    int       // total of the sweep before
}

// counts reports whether rows that are seen first matter: not before the list was read once.
func (d *debt) counts() bool { return d.base > 0 }

// note notes the rows that a sweep has seen first. Without totals nothing is missing; a
// single page without one says nothing.
func (d *debt) note(total, found int, now time.Time) {
	d.seen += found
	if total == 0 {
		return
	}
	missing := 0
	if d.counts() {
		missing = total - d.base - d.seen
	}
	if missing > d.missing {
		d.since = now
	}
	d.missing = max(0, missing)
}

// forgive forgets what was missing for an hour when a round has not found it: a total may
// count what no page shows.
func (d *debt) forgive(began time.Time, total int) {
	if d.missing == 0 || !began.Before(d.since.Add(retry.MissingFor)) {
		d.base, d.seen, d.missing = total, 0, 0
	}
}
