package sweep

import (
	"cmp"
	"slices"
	"time"
)

// reading reads the list page by page, from its first row to its last or back to a time.
//
// Rows are added and removed while it is read. A row that is added in front moves others on, and they are shown twice. One that is
// removed in front moves others back, to where was read already. So where the total shrinks, and a page shows no row of the one
// before it, that one is read again, and if it has changed, all from where its rows may be.
type reading struct {
	began     time.Time // every row that was listed then was read, of one that is done and skipped nothing
	since     time.Time // ... if it was made since then; zero if whenever it was made
	page      int       // to be asked for next, from 1
	read      int       // rows from the first on that surely were
	pushed    int       // rows that were added in front of them since, if they were
	stays     bool      // they were not: rows are not added in front
	far       int       // the last page so far that joined
	pages     int       // that were read
	limit     int       // rows of a page that are asked for
	size      int       // rows of a full page, whatever was asked for
	end       int       // rows up to the last one of the page that joined last
	total     int       // of the list, as the last page that had rows said; 0 if it did not
	still     int       // pages in a row that showed nothing further: behind the last row they are empty, or the last one again
	first     []uint64  // keys of the first page
	listed    int       // total of that page
	last      []uint64  // keys of the last page that had any and joined; all rows before them were read
	next      []uint64  // keys of a page that did not join, while the one before it is read again
	nextTotal int       // total of that page; 0: there is none
	newest    time.Time // time of the first page's newest row; one in the future counts as Overlap ago
	latest    time.Time // ... as listed
	rows      trend
	medians   trend // of pages: a single row may come late
	done      bool
	skipped   bool // rows may have been missed, or could not be stored
	short     bool // it ended at empty pages in front of what the total says
	repeated  bool // it ended at a full page shown again, without a total: the last one, or the list grew as fast as it was read
}

const (
	maxStill = 3 // pages that show nothing further, in a row, before that is believed against the total
	maxRead  = 4 // pages that are read for each one of the list, to find rows that moved: totals may be guesses
)

// newReading begins a reading back to a time, by pages of so many rows; zero means the whole list.
func newReading(since time.Time, limit int) *reading {
	return &reading{began: time.Now(), since: since, page: 1, limit: limit}
}

// take takes the page that was asked for, says what to ask for next, and reports whether it joins what was read.
func (w *reading) take(keys []uint64, total int) bool {
	n := len(keys)
	if w.pages > 0 && n > w.size { // those before were shorter than full ones: nobody knows what they left out
		*w = reading{began: w.began, since: w.since, page: 1, far: w.far, limit: w.limit, size: n, stays: w.stays}
		return false
	}
	w.size = max(w.size, n)
	if w.pages++; w.pages == 1 {
		w.first, w.listed, w.total, w.read = keys, total, total, (w.page-1)*w.size
	}
	if w.jump(total) { // all of this page was read where it was before
		return false
	}
	w.read -= max(0, w.total-cmp.Or(total, w.total))
	if w.nextTotal > 0 && slices.Equal(keys, w.last) {
		w.read, w.page = w.page*w.size, w.page+1
		if total > w.nextTotal { // rows came since: it may have moved there and back, and what is behind it is read again
			w.total, w.nextTotal = total, 0
			return false
		}
		keys, n, total = w.next, len(w.next), w.nextTotal // nothing has moved: what was read behind it is next to it
	}
	from := (w.page - 1) * w.size
	joins := total == 0 && w.pushed == 0 || from <= max(0, w.read) || goesOn(w.last, keys) || goesOn(keys, w.last)
	if !joins && w.pages <= maxRead*(w.page+2) {
		if w.total = cmp.Or(total, w.total); w.pushed == 0 && w.nextTotal == 0 {
			w.page, w.next, w.nextTotal = w.page-1, keys, total
		} else {
			w.page, w.stays, w.pushed, w.nextTotal = max(0, w.read)/w.size+1, w.stays || w.pushed > 0, 0, 0
		}
		return false
	}
	w.skipped, w.far = w.skipped || !joins, max(w.far, w.page)
	further := slices.ContainsFunc(keys, func(key uint64) bool { return !slices.Contains(w.last, key) })
	if w.end, w.total = from+n, cmp.Or(total, w.total); n > 0 { // one that shows nothing says nothing of what was read
		w.last, w.total, w.read, w.nextTotal, w.pushed = keys, total, w.page*w.size, 0, 0
	}
	if w.still++; n > 0 && (further || total > 0) {
		w.still = 0
	}
	ends := total > 0 && w.end >= total && (!further || n < w.size || n == total && n < w.limit) // the total of a full page may be its own
	if w.done = ends || w.still > maxStill; !w.done && n > 0 {
		w.page++
	}
	w.short, w.repeated = w.done && w.end < total, w.done && total == 0 && n == w.size
	// A service that begins again may say for a while that there is nothing: that is not the list's end.
	w.skipped = w.skipped || w.done && (len(w.last) == 0 || n == 0 && total == 0 && w.end < w.total)
	return true
}

// jump leaves out pages when the total grew: rows that were added in front pushed the unread ones that far on. It reports whether it
// did. If the rows there do not join, take goes back.
func (w *reading) jump(total int) bool {
	pushed := w.pushed + total - w.total
	next := (w.read+pushed-1)/max(w.size, 1) + 1
	if w.stays || w.nextTotal > 0 || w.page < 2 || w.total == 0 || next <= w.page {
		return false
	}
	w.page, w.pushed, w.total = next, pushed, total
	return true
}

// goesOn reports whether a page begins in another one, and shows its last row: one row alone may be listed twice.
func goesOn(from, page []uint64) bool {
	return len(from)*len(page) > 0 && slices.Contains(from, page[0]) && slices.Contains(page, from[len(from)-1])
}

// rereads reports whether the next page is one that was read before: rows may be there that moved.
func (w *reading) rereads() bool { return !w.done && w.page <= w.far }

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

// newestFirst reports whether nearly all steps lead back, between pages, or between rows where there are few pages; known: there are
// enough.
func (w *reading) newestFirst() (yes, known bool) {
	for _, t := range []trend{w.medians, w.rows} {
		if all := t.up + t.down; all >= 8 {
			return 10*t.down >= 9*all, true
		}
	}
	return false, false
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

func later(a, b time.Time) time.Time { return slices.MaxFunc([]time.Time{b, a}, time.Time.Compare) }

func earlier(a, b time.Time) time.Time { return slices.MinFunc([]time.Time{b, a}, time.Time.Compare) }
