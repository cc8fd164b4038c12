package poll

import (
	"errors"

	"errand/pkg/clients/mail"
)

// walk decides which pages a sweep reads:
//
//	newest first   from the first row to where nothing is new
//	oldest first   from the end back to where nothing is new, then on to the end
//	otherwise      from the first row to the end
//
// A log that was never read to its end is read to its end whatever its order.
//
// Rows are added and removed while it is read. A row that is added before the current
// place makes rows appear twice; a row that is removed there moves others to a part that
// was read already. So each page must have a row of the previous page: then no row between
// the two is missed. Pages of the same size do not overlap, but pages of different sizes
// do: page 2 of 99 rows begins with the last row of page 1 of 100.
type walk struct {
	size  int // rows on a full page, whatever was requested
	total int // total_record of the first page

	asked    window // the request that the current page answers
	from     int    // rows before it, as far as known
	joined   bool   // there is no row between it and the previous page
	overlaps bool   // it has a row of the previous page
	rows     []ID   // of the current page

	before    map[ID]struct{} // rows of the last page that joined
	last      ID              // the last of them
	end       int             // rows up to that one when its page was read
	lastTotal int             // total_record of that page

	loose    bool // the current page need not overlap
	fixed    bool // the upstream has pages of one size, which cannot overlap
	jumped   bool // the join was looked for as far ahead as the log grew
	back     int  // how many rows back it was looked for
	restarts int  // how often the walk began again
	stuck    int  // pages in a row without progress
	fromEnd  bool // the walk began at the end
	stepBack int  // pages to step back from the end while looking for where to begin; 0: not looking
	whole    bool // every row was read
}

// window is the request of one read: limit rows, beginning with index (page-1)*limit.
type window struct{ page, limit int }

func (v window) from() int { return (v.page - 1) * v.limit }
func (v window) to() int   { return v.page * v.limit }

var errSamePage = errors.New("poll: the upstream gives the same page again for another page number")

// start begins with the first page. An upstream may return fewer rows than requested
// without saying so.
func start(first mail.LogPage, limit int) walk {
	w := walk{size: limit, total: first.TotalRecord, asked: window{1, limit}, loose: true}
	if n := len(first.Entries); n > limit || n > 0 && first.TotalRecord > n {
		w.size, w.asked.limit = n, n
	}
	return w
}

// arrive takes the page that was requested. joined: it follows the previous page, and its
// rows from index fresh on are not on that one.
func (w *walk) arrive(page mail.LogPage) (fresh int, joined bool) {
	w.rows = w.rows[:0]
	for i, e := range page.Entries {
		w.rows = append(w.rows, idOf(e, ""))
		if _, ok := w.before[w.rows[i]]; ok {
			fresh = i + 1
		}
	}
	w.from = w.asked.from()
	switch n, reported := len(w.rows), page.Limit; {
	case n > w.asked.limit:
		w.from = (w.asked.page - 1) * n
	case reported > 0 && reported < w.asked.limit, w.fixed && reported > w.asked.limit:
		w.from = (w.asked.page - 1) * reported
	}
	w.overlaps = fresh > 0
	follows := w.overlaps || w.from == w.end && page.TotalRecord == w.lastTotal
	w.joined = w.stepBack == 0 && (w.overlaps || w.loose && w.from <= w.end)
	if !w.joined {
		return 0, false
	}
	return fresh, follows && w.before != nil
}

// next is what to read after page; a window with page 0 when the sweep is done.
// settled: nothing on page is new, and all of it is older than what is read again.
// known: the log was read before, as far back as required.
func (w *walk) next(page mail.LogPage, o order, settled, known bool) (window, error) {
	switch {
	case w.stepBack > 0:
		return w.seek(page, settled), nil
	case !w.joined:
		return w.search(page), nil
	}
	n, first, same := len(w.rows), w.before == nil, w.repeats()
	if w.stuck++; !same {
		w.stuck = 0
	}
	// A short page means the end of the log unless pages have become that short. If the
	// upstream does not say how long its pages are, a page that ends with the same row as
	// the previous one may be such a page.
	short, full := n < w.asked.limit, page.Limit > 0 && n >= page.Limit
	w.whole = n == 0 || short && !full && (w.from+n == page.TotalRecord || same && (page.Limit > 0 || w.stuck > 1))
	if w.stuck > maxStuck && !w.whole {
		if page.TotalRecord > w.end {
			return window{}, errSamePage
		}
		w.whole = true
	}
	w.keep(page)
	if w.whole || o == newestFirst && settled {
		return window{}, nil
	}
	if short { // total_record is wrong or missing, or pages became shorter
		w.size = n
	}
	if last := (page.TotalRecord + w.size - 1) / w.size; first && o == oldestFirst && known && last > 1 {
		w.fromEnd, w.stepBack = true, 1
		return w.ask(window{last, w.size}, true), nil
	}
	return w.onward(page), nil
}

// maxStuck is how often a full page may end with the same row as the previous one: as many
// rows may have been added as the walk went on.
const maxStuck = 3

// repeats reports whether the page ends with the same row as the previous one.
func (w *walk) repeats() bool {
	return len(w.rows) > 0 && w.before != nil && w.rows[len(w.rows)-1] == w.last
}

// keep makes the current page the one that the next page must join.
func (w *walk) keep(page mail.LogPage) {
	if len(w.rows) == 0 {
		return
	}
	w.before = make(map[ID]struct{}, len(w.rows))
	for _, row := range w.rows {
		w.before[row] = struct{}{}
	}
	if end := w.from + len(w.rows); !w.repeats() || len(w.rows) == w.asked.limit { // otherwise its place is unknown
		w.end = end
	}
	w.last, w.lastTotal = w.rows[len(w.rows)-1], page.TotalRecord
	w.jumped, w.back = false, 0
}

// onward requests what follows the last page that joined.
func (w *walk) onward(page mail.LogPage) window {
	if !w.fixed {
		if v := windowWith(w.end-1, w.size); v.to() > w.end {
			return w.ask(v, false)
		}
	}
	gone := max(0, w.lastTotal-page.TotalRecord)
	return w.ask(window{max(0, w.end-gone)/w.size + 1, w.size}, true)
}

func (w *walk) ask(v window, loose bool) window {
	w.asked, w.loose = v, loose
	return v
}

// seek goes back from the end, in longer and longer steps, to find where to begin.
func (w *walk) seek(page mail.LogPage, settled bool) window {
	number := w.asked.page - w.stepBack
	w.stepBack *= 2
	switch {
	case settled && len(w.rows) > 0:
		w.keep(page)
	case len(w.rows) > 0 && number > 1:
		return w.ask(window{number, w.size}, true)
	} // otherwise continue after the first page: total_record is wrong, or everything is new
	w.stepBack = 0
	return w.onward(page)
}

// maxBack is how many pages back a join is looked for.
const maxBack = 16

// maxRestarts is how often a walk begins again before it stops looking for joins.
const maxRestarts = 3

// search looks for the join that the current page should have had.
func (w *walk) search(page mail.LogPage) window {
	n, at := len(w.rows), w.end-1
	switch {
	case n > w.asked.limit || page.Limit > w.asked.limit:
		if w.size = max(n, w.size); n <= w.asked.limit && w.fixed { // the last page, or one after it
			w.size = page.Limit
		}
		w.fixed = true
		return w.onward(page)
	case page.Limit > 0 && page.Limit < min(w.size, w.asked.limit):
		w.size = page.Limit
	case n > 0 && n < min(w.size, w.asked.limit) && w.from+n != page.TotalRecord:
		w.size = n
	case !w.jumped && page.TotalRecord > w.lastTotal:
		w.jumped = true
		at += page.TotalRecord - w.lastTotal
	default:
		w.back = max(w.back+w.size, w.lastTotal-page.TotalRecord)
		at -= w.back
		if w.back > maxBack*w.size && w.back > 2*(w.lastTotal-page.TotalRecord) {
			at = 0
		}
	}
	if at <= 0 {
		w.restarts++
		w.fixed = w.fixed || w.restarts > maxRestarts
		return w.ask(window{1, w.size}, true)
	}
	return w.ask(windowWith(at, w.size), false)
}

// windowWith returns the window of at most size rows that contains index at and as many
// rows after it as possible.
func windowWith(at, size int) window {
	best := window{at/size + 1, size}
	for limit := size - 1; limit > best.to()-at; limit-- {
		if v := (window{at/limit + 1, limit}); v.to() > best.to() {
			best = v
		}
	}
	return best
}
