package sweep

import (
	"slices"
	"time"
)

// reading is a walk that may become a complete Reading.
type reading struct {
	walk
	Reading
	first   []uint64 // keys of its first page
	asked1  window   // what was asked for it
	oldest  time.Time
	isCut   bool  // it ended before the end of the list
	resumed bool  // or rows of it could not be stored: it is not complete, whatever it finds
	found   int   // states that it found
	rows    trend // whether rows become newer or older, one by one
	pages   trend // whether pages do, by their rows' median: a single row may come late
}

// Reading is a complete reading of the list, or of its newer part.
type Reading struct {
	Began time.Time // every row that was listed then was read; zero if there was no reading
	Back  time.Time // ... if it was made since then; zero if whenever it was made
}

// newReading begins a reading back to a time; zero means the whole list.
func (r *run[T]) newReading(back time.Time) *reading {
	return &reading{walk: newWalk(r.Limit), Reading: Reading{Began: time.Now(), Back: back}}
}

// note notes the rows of a page, and returns their keys and how new they are. One from the future may be as old as Overlap.
func note[T any](r *reading, rows []Row[T], now time.Time, overlap time.Duration) (keys []uint64, newest time.Time) {
	keys = make([]uint64, len(rows))
	for i, row := range rows {
		keys[i] = row.ID.Key()
	}
	if r.first == nil {
		r.first, r.asked1 = keys, r.asked
	}
	times := timesOf(rows)
	for _, at := range times {
		r.rows.note(at)
		if r.oldest.IsZero() || at.Before(r.oldest) {
			r.oldest = at
		}
		if at.After(now) {
			at = now.Add(-overlap)
		}
		newest = later(newest, at)
	}
	if len(times) > 0 {
		slices.SortFunc(times, time.Time.Compare)
		r.pages.note(times[len(times)/2])
	}
	return keys, newest
}

// timesOf are the times at which rows were made, as far as they are known.
func timesOf[T any](rows []Row[T]) []time.Time {
	times := make([]time.Time, 0, len(rows))
	for _, row := range rows {
		if !row.At.IsZero() {
			times = append(times, row.At)
		}
	}
	return times
}

// trend counts steps between one time and the next.
type trend struct {
	last     time.Time
	up, down int
}

func (t *trend) note(at time.Time) {
	switch {
	case t.last.IsZero():
	case at.After(t.last):
		t.up++
	case at.Before(t.last):
		t.down++
	}
	t.last = at
}

// order is the order of nearly all steps; known says that there are enough.
func (t trend) order(enough int) (o Order, known bool) {
	switch all := t.up + t.down; {
	case all < enough:
		return Unordered, false
	case 10*t.down >= 9*all:
		return NewestFirst, true
	case 10*t.up >= 9*all:
		return OldestFirst, true
	}
	return Unordered, true
}

// Order is the order in which a list shows its rows.
type Order int

// The orders.
const (
	Unordered Order = iota // or not known yet
	NewestFirst
	OldestFirst
)

// order returns the order of nearly all pages, or of nearly all rows where there are few pages. It returns before if
// all rows were made at about the same time.
func (r *reading) order(before Order) Order {
	if o, known := r.pages.order(8); known {
		return o
	}
	if o, known := r.rows.order(8); known {
		return o
	}
	return before
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
