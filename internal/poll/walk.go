package poll

import (
	"bytes"
	"errors"

	"errand/pkg/clients/mail"
)

// walk is the way of a sweep through the pages:
//
//	newest first   1, 2, 3 … to where nothing is new
//	oldest first   1, then the last page, the one before … to where nothing is new
//	else           1, 2, 3 … to the end
//
// A log that was never read through is read to its end whatever its order. Rows
// that are added meanwhile only make others come twice, as they move away from the
// pages that were read: those of a log with the newest first move on, those of one
// with the oldest first stay.
type walk struct {
	mode   mode
	limit  int // rows on a full page, whatever was asked for
	total  int // total_record of the first page
	floor  int // last page read on the way forward
	top    int // first page read at the end
	before mail.LogPage
}

type mode int

const (
	forward  mode = iota // from the first page on
	tail                 // at the end, looking whether it is the end
	backward             // from the end
)

var errSamePage = errors.New("poll: the upstream gives the same page again for another page number")

// start begins at the first page. An upstream may give fewer rows than it is asked
// for, and say nothing of it.
func start(first mail.LogPage, limit int) walk {
	if n := len(first.Entries); n > limit || n > 0 && first.TotalRecord > n {
		limit = n
	}
	return walk{limit: limit, total: first.TotalRecord}
}

// next is the number of the page to read after page, 0 when the sweep is done.
// settled: nothing is new on page, and all of it lies behind what is read again.
// known: the log was read through before.
func (w *walk) next(page mail.LogPage, o order, settled, known bool) (int, error) {
	number, rows := page.CurrentPage, len(page.Entries)
	covered := number*w.limit >= page.TotalRecord
	again := w.mode != backward && same(w.before, page)
	w.before = page
	if again && !covered {
		return 0, errSamePage
	}
	end := rows == 0 || again || rows < w.limit && covered
	switch w.mode {
	case forward:
		if end || o == newestFirst && settled {
			return 0, nil
		}
		if last := (page.TotalRecord + w.limit - 1) / w.limit; o == oldestFirst && known && last > number && w.floor == 0 {
			w.mode, w.floor, w.top = tail, number, last
			return last, nil
		}
		return number + 1, nil
	case tail:
		if number == w.top && rows == 0 { // total_record is wrong: go on where we left
			w.mode = forward
			return w.floor + 1, nil
		}
		if !end {
			return number + 1, nil
		}
		if number == w.top && settled {
			return 0, nil
		}
		w.mode = backward
		number = w.top
	case backward:
		if settled {
			return 0, nil
		}
	}
	if number-1 <= w.floor {
		return 0, nil
	}
	return number - 1, nil
}

// same reports whether b is a once more, rather than rows that moved on.
func same(a, b mail.LogPage) bool {
	n := len(a.Entries)
	return n > 0 && n == len(b.Entries) && a.TotalRecord == b.TotalRecord &&
		bytes.Equal(a.Entries[0].Raw, b.Entries[0].Raw) && bytes.Equal(a.Entries[n-1].Raw, b.Entries[n-1].Raw)
}
