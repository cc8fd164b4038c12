package sweep

import "slices"

// walk reads a list from its first page on, so that no row between two pages is missed.
//
// Rows are added and removed while it is read. A row that is added before the current place makes rows appear twice; a
// row that is removed there moves others to a part that was read already. So each page must show a row of the page
// before. Pages of one size do not overlap, but pages of different sizes do: page 2 of 99 rows begins with the last row
// of page 1 of 100. Where no two overlap, as the upstream has pages of one size, whatever is asked for, only a total
// that has not shrunk says that nothing was missed.
type walk struct {
	shape
	asked window
	end   int      // rows up to the last one that was read
	from  int      // index of the first row of the page that was read last
	last  []uint64 // keys of the last page that joined
	total int      // of that page
	grown int      // by how many rows the list grew between two pages, at least
	most  int      // pages that it may have grown by: none once rows were not where they would have moved to
	count counts
	state state

	strict  bool // the next page must show a row of last
	skipped bool // rows may have been missed
}

// shape is what is known of the list's pages.
type shape struct {
	size  int  // rows of a full page
	fixed bool // the upstream ignores limit
	wrong bool // what pages say of their size is not true
}

type counts struct {
	read  int
	still int // in a row that brought nothing further
	lost  int // in a row that showed no row of the page before
	alike int // that brought nothing further while the total grew
}

type state int

const (
	underWay state = iota
	whole          // every row was read
	short          // it ended, and not every row was read
)

// window is what one read asks for: limit rows from index (page-1)*limit on.
type window struct{ page, limit int }

func (v window) from() int { return (v.page - 1) * v.limit }
func (v window) to() int   { return v.page * v.limit }

func newWalk(limit int) walk {
	return walk{asked: window{1, limit}, shape: shape{size: limit}, most: 1}
}

// resume goes on where another walk had arrived. What was before is not read again, so it is never whole.
func (w *walk) resume(end int) { w.end, w.skipped, w.asked.page = end, true, end/w.size+1 }

// join begins behind rows that were the last ones of so many, in a list of this shape.
func (w *walk) join(end int, last []uint64, s shape) {
	w.end, w.total, w.last, w.shape, w.strict = end, end, last, s, true
	w.asked = w.with(max(end-1, 0))
}

func (w *walk) done() bool { return w.state == whole || w.state == short }

const (
	maxStill = 2 // how often the end of the list is read before it is believed against the total
	maxAlike = 8 // how often a page may bring nothing further because the list grows
	maxLost  = 6 // how often a page is looked for that joins the page before
	maxRead  = 4 // how many pages are read for each one of the list, to find rows that moved: totals may be guesses
)

// take takes the page that was asked for and says what to ask for next.
func (w *walk) take(keys []uint64, total, limit int) {
	n := len(keys)
	// The first page is not as long as it says, and not the whole list: with a size that is too
	// large the next page would never be asked for. The last page may say how many rows it has.
	w.wrong = w.wrong || w.asked.page == 1 && limit > 0 && (n > limit || n < limit && n != total) ||
		w.last != nil && n == limit && n < min(w.size, w.asked.limit)
	if w.wrong {
		limit = 0
	}
	w.resize(n, total, limit)
	from := w.asked.from()
	if limit = w.size; w.fixed || limit < w.asked.limit {
		from = (w.asked.page - 1) * limit
	}
	w.from = from
	w.count.read++
	first := w.last == nil // a walk that was resumed joins nothing
	shown := slices.ContainsFunc(keys, func(k uint64) bool { return slices.Contains(w.last, k) })
	joined := first || shown || !w.strict && from <= w.end && !w.overlaps()
	switch {
	case joined && !first && total > w.total && w.count.alike < maxAlike && endAlike(keys, w.last): // it grew by about a page
		w.count.alike++
		w.end = from + n
	case n == 0 && w.count.lost == 0 && (total == 0 || total >= w.end), joined && !first && endAlike(keys, w.last):
		w.count.still++
	case (n == 0 || !joined) && w.count.lost < maxLost:
		w.most = 0
		w.lookBack(total)
		return
	case n == 0: // where the page was looked for that joins the last one
		w.skipped = true
		w.count.still++
	default:
		if !joined {
			w.skipped = true
		}
		w.end, w.last, w.strict, w.count.still, w.count.lost = from+n, keys, false, 0, 0
	}
	grown := max(0, total-w.total)
	if w.total == 0 || total == 0 {
		grown = 0
	}
	w.grown = min(grown, 2*w.grown+n/4, w.most*n)
	gone := 0
	if joined && !first && !shown && total > 0 {
		gone = max(0, w.total-total)
	}
	w.total = total
	if gone > 0 && w.count.read > maxRead*(w.asked.page+2) {
		gone, w.skipped = 0, true
	}
	if gone > 0 { // rows of the list that were behind this page may be before it now
		w.asked = window{max(0, from-gone)/w.size + 1, w.size}
		return
	}
	if ends := w.count.still > 0 || n < min(w.asked.limit, w.size); ends && (total == w.end || w.count.still > maxStill) {
		w.finish()
		return
	}
	w.onward()
}

// endAlike reports whether one of two pages is the end of the other: a single row may be listed twice.
func endAlike(a, b []uint64) bool {
	n := min(len(a), len(b))
	return slices.Equal(a[len(a)-n:], b[len(b)-n:])
}

// resize learns how long pages are.
func (w *walk) resize(n, total, limit int) {
	switch {
	case n > w.asked.limit:
		w.fixed, w.size = true, n
	case limit > w.asked.limit:
		w.fixed, w.size = true, limit
	case limit > 0 && limit < w.asked.limit:
		w.size = min(w.size, limit)
	case !w.fixed && w.capped(n, total):
		w.size = n // or this is all, which the next page shows
	}
	w.fixed = w.fixed || w.size <= 2 // pages of one or two rows cannot always overlap
}

// capped reports whether a page of n rows is shorter than what was asked for by a limit that
// the upstream does not tell, whatever it says that a page has. Later pages are known less
// well: one that is much shorter is the last one, or an odd one.
func (w *walk) capped(n, total int) bool {
	switch {
	case n == 0 || n >= min(w.size, w.asked.limit):
		return false
	case w.last == nil && w.asked.page == 1:
		return n != total
	}
	return 2*n >= w.size && (total == 0 || w.asked.from()+n < total)
}

// lookBack asks for the page that joins the last one: as far ahead as the list grew, then
// back in longer and longer steps.
func (w *walk) lookBack(total int) {
	w.count.lost++
	at := w.end - 1 - w.size<<w.count.lost/4
	if grown := total - w.total; w.count.lost == 1 && grown > 0 {
		at = w.end - 1 + grown
	}
	w.asked = w.with(max(at, 0))
}

// overlaps reports whether a page shows the last row that was read and the next one too. None does
// behind as many rows as each length of a page divides: 12 where it has 4 at most, 2520 where it has 10.
func (w *walk) overlaps() bool { return !w.fixed && w.with(max(w.end-1, 0)).to() > w.end }

// onward asks for what follows the last page that joined. What looks like the end of a list whose total is unknown may be
// one that grew meanwhile: behind its end is nothing, or the end again, be it near or far.
func (w *walk) onward() {
	if w.count.still > 0 && w.total == 0 {
		w.asked = window{w.end/w.size + 5*w.count.still - 3, w.size}
		return
	}
	if w.overlaps() {
		w.asked = w.with(max(w.end-1, 0) + w.grown*9/10) // the last row will have moved so far by then
		return
	}
	w.asked = window{w.end/w.size + 1, w.size}
}

func (w *walk) finish() {
	w.state = short
	if !w.skipped && w.end >= w.total {
		w.state = whole
	}
}

// with returns the window that contains index at and as many rows after it as possible.
func (w *walk) with(at int) window {
	best := window{at/w.size + 1, w.size}
	for limit := w.size - 1; !w.fixed && limit > best.to()-at; limit-- {
		if v := (window{at/limit + 1, limit}); v.to() > best.to() {
			best = v
		}
	}
	return best
}
