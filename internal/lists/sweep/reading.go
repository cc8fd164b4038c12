package sweep

import (
	"slices"
	"time"
)

// reading is a walk that may become a complete Reading.
type reading struct {
	walk
	Reading
	tolerance time.Duration // rows may be out of order by that
	learned   int           // how often events of others were learned when it began
	isCut     bool          // it ended before the end of the list
	found     int           // states that it found
	pages     int           // with times
	newer     int           // of them: newer than a page before, so the newest rows are not first
	older     int           // of them: older than a page before
	low, high time.Time     // the lowest and the highest time of a page so far
	rows      int           // with times
	up, down  int           // of them: newer, and older, than the row before on the page
}

// Reading is a complete reading of the list, or of its newer part.
type Reading struct {
	Began          time.Time // every row that was listed then was read; zero if there was no reading
	Back           time.Time // ... if it was made since then; zero if whenever it was made
	Oldest, Newest time.Time // of the rows read
}

// newReading begins a reading back to a time; zero means the whole list.
func (r *run[T]) newReading(back time.Time) *reading {
	return &reading{walk: newWalk(r.Limit), tolerance: r.Overlap, learned: r.learned, Reading: Reading{Began: time.Now(), Back: back}}
}

// note notes the times of a page's rows, and returns the newest. A page's time is its median: a single row may come late.
func (r *reading) note(times []time.Time) (newest time.Time) {
	if len(times) == 0 {
		return newest
	}
	for i, at := range times[1:] {
		switch before := times[i]; {
		case at.After(before.Add(r.tolerance)):
			r.up++
		case at.Before(before.Add(-r.tolerance)):
			r.down++
		}
	}
	r.rows += len(times)
	slices.SortFunc(times, time.Time.Compare)
	newest = times[len(times)-1]
	r.Newest = later(r.Newest, newest)
	if r.Oldest.IsZero() || times[0].Before(r.Oldest) {
		r.Oldest = times[0]
	}
	at := times[len(times)/2]
	if r.pages++; r.pages == 1 {
		r.low, r.high = at, at
	}
	if at.After(r.low.Add(r.tolerance)) {
		r.newer++
	}
	if at.Before(r.high.Add(-r.tolerance)) {
		r.older++
	}
	r.low, r.high = earlier(r.low, at), later(r.high, at)
	return newest
}

// Order is the order in which a list shows its rows.
type Order int

// The orders.
const (
	Unordered Order = iota // or not known yet
	NewestFirst
	OldestFirst
)

// order returns the order of nearly all pages and of nearly all rows on them: a few pages without
// order may look as if they had one. It returns before if all rows were made at about the same time.
func (r *reading) order(before Order) Order {
	switch {
	case r.high.Sub(r.low) <= r.tolerance:
		return before
	case 10*r.newer <= r.pages && 50*r.up <= r.rows:
		return NewestFirst
	case 10*r.older <= r.pages && 50*r.down <= r.rows:
		return OldestFirst
	}
	return Unordered
}

// reached reports whether a page whose newest row is this old ends the reading: the newest
// rows are first, on all pages and on each but for a few rows, the newest of all known is
// among those that were read, and the page is wholly older than what must be read.
func (r *reading) reached(pageNewest, newestKnown time.Time) bool {
	return !r.Back.IsZero() && !pageNewest.IsZero() && r.newer == 0 && 50*r.up <= r.rows &&
		!r.Newest.Before(newestKnown.Add(-r.tolerance)) && pageNewest.Before(r.Back.Add(-r.tolerance))
}

// cut ends the reading before the end of the list. One that may have missed rows is not complete by that.
func (r *reading) cut() {
	r.isCut = true
	if r.state == underWay {
		r.state = whole
		return
	}
	r.state = short
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
