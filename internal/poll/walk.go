package poll

import (
	"errors"

	"errand/pkg/clients/mail"
)

// walk is the way of a sweep through the log:
//
//	newest first   from the first row to where nothing is new
//	oldest first   from the end back to where nothing is new, then on to the end
//	else           from the first row to the end
//
// A log that was never read through is read to its end whatever its order.
//
// Rows come and go while it is read. One that comes in before the place where the
// walk is makes rows come twice; one that goes there moves others to where the walk
// was already. So each page must hold a row of the page before it: then whatever
// stands between the two is on one of them. Pages of one size do not overlap, but
// those of another do: page 2 of 99 rows begins with the last row of page 1 of 100.
type walk struct {
	size  int // rows on a full page, whatever was asked for
	total int // total_record of the first page

	asked    window // what the page at hand is the answer to
	from     int    // rows before it, as far as is known
	joined   bool   // nothing lies between it and the page before
	overlaps bool   // it holds a row of the page before
	rows     []ID   // on it

	before map[ID]struct{} // rows of the last page that joined
	last   ID              // of them
	end    int             // rows up to there, then
	then   int             // total_record then

	loose  bool // what was asked for may begin anywhere
	fixed  bool // the upstream has pages of one size: they cannot overlap
	leapt  bool // the join was looked for as far on as the log grew
	back   int  // how far back it was looked for
	anew   int  // how often the walk began again
	stuck  int  // pages in a row that led nowhere
	sought bool // the way began at the end
	away   int  // pages from the end back while it is sought where to begin; 0: it is not
	whole  bool // every row was passed
}

// window is what one read asks for: limit rows from the (page-1)*limit-th on.
type window struct{ page, limit int }

func (v window) from() int { return (v.page - 1) * v.limit }
func (v window) to() int   { return v.page * v.limit }

var errSamePage = errors.New("poll: the upstream gives the same page again for another page number")

// start begins at the first page. An upstream may give fewer rows than it is asked
// for, and say nothing of it.
func start(first mail.LogPage, limit int) walk {
	w := walk{size: limit, total: first.TotalRecord, asked: window{1, limit}, loose: true}
	if n := len(first.Entries); n > limit || n > 0 && first.TotalRecord > n {
		w.size, w.asked.limit = n, n
	}
	return w
}

// arrive takes the page that was asked for. fresh: its rows from there on follow upon
// those of the page before, if it joins that one.
func (w *walk) arrive(page mail.LogPage) (fresh int, joined bool) {
	w.rows = w.rows[:0]
	for i, e := range page.Entries {
		w.rows = append(w.rows, idOf(e, ""))
		if _, ok := w.before[w.rows[i]]; ok {
			fresh = i + 1
		}
	}
	w.from = w.asked.from()
	switch n, told := len(w.rows), page.Limit; {
	case n > w.asked.limit:
		w.from = (w.asked.page - 1) * n
	case told > 0 && told < w.asked.limit, w.fixed && told > w.asked.limit:
		w.from = (w.asked.page - 1) * told
	}
	w.overlaps = fresh > 0
	follows := w.overlaps || w.from == w.end && page.TotalRecord == w.then
	w.joined = w.away == 0 && (w.overlaps || w.loose && w.from <= w.end)
	if !w.joined {
		return 0, false
	}
	return fresh, follows && w.before != nil
}

// next is what to read after page, a window of no page when the sweep is done.
// settled: nothing is new on page, and all of it lies behind what is read again.
// known: the log was read through before, as far back as is asked for.
func (w *walk) next(page mail.LogPage, o order, settled, known bool) (window, error) {
	switch {
	case w.away > 0:
		return w.seek(page, settled), nil
	case !w.joined:
		return w.search(page), nil
	}
	n, first, same := len(w.rows), w.before == nil, w.repeats()
	if w.stuck++; !same {
		w.stuck = 0
	}
	// A page that is as long as pages are now tells nothing of the end. Where the upstream does
	// not say how long they are, one that ends where the one before did may be such a page.
	short, full := n < w.asked.limit, page.Limit > 0 && n >= page.Limit
	w.whole = n == 0 || short && !full && (w.from+n == page.TotalRecord || same && (page.Limit > 0 || w.stuck > 1))
	if w.stuck > mostStuck && !w.whole {
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
		w.sought, w.away = true, 1
		return w.ask(window{last, w.size}, true), nil
	}
	return w.onward(page), nil
}

// mostStuck is how often a full page may end where the one before did: just as many
// rows came in as it goes further.
const mostStuck = 3

// repeats reports whether the page ends where the one before did.
func (w *walk) repeats() bool {
	return len(w.rows) > 0 && w.before != nil && w.rows[len(w.rows)-1] == w.last
}

// keep makes the page at hand the one that the next must join.
func (w *walk) keep(page mail.LogPage) {
	if len(w.rows) == 0 {
		return
	}
	w.before = make(map[ID]struct{}, len(w.rows))
	for _, row := range w.rows {
		w.before[row] = struct{}{}
	}
	if end := w.from + len(w.rows); !w.repeats() || len(w.rows) == w.asked.limit { // else it may begin anywhere
		w.end = end
	}
	w.last, w.then = w.rows[len(w.rows)-1], page.TotalRecord
	w.leapt, w.back = false, 0
}

// onward asks for what follows.
func (w *walk) onward(page mail.LogPage) window {
	if !w.fixed {
		if v := holding(w.end-1, w.size); v.to() > w.end {
			return w.ask(v, false)
		}
	}
	gone := max(0, w.then-page.TotalRecord)
	return w.ask(window{max(0, w.end-gone)/w.size + 1, w.size}, true)
}

func (w *walk) ask(v window, loose bool) window {
	w.asked, w.loose = v, loose
	return v
}

// seek finds where to begin on the way back from the end, with longer and longer steps.
func (w *walk) seek(page mail.LogPage, settled bool) window {
	number := w.asked.page - w.away
	w.away *= 2
	switch {
	case settled && len(w.rows) > 0:
		w.keep(page)
	case len(w.rows) > 0 && number > 1:
		return w.ask(window{number, w.size}, true)
	} // else go on behind the first page: total_record is wrong, or all is new
	w.away = 0
	return w.onward(page)
}

// farthest is how many pages back the join is looked for.
const farthest = 16

// mostAnew is how often a walk begins again before it does without joins.
const mostAnew = 3

// search looks for the join that the page at hand should have had.
func (w *walk) search(page mail.LogPage) window {
	n, at := len(w.rows), w.end-1
	switch {
	case n > w.asked.limit || page.Limit > w.asked.limit:
		if w.size = max(n, w.size); n <= w.asked.limit && w.fixed { // the last page, or one behind it
			w.size = page.Limit
		}
		w.fixed = true
		return w.onward(page)
	case page.Limit > 0 && page.Limit < min(w.size, w.asked.limit):
		w.size = page.Limit
	case n > 0 && n < min(w.size, w.asked.limit) && w.from+n != page.TotalRecord:
		w.size = n
	case !w.leapt && page.TotalRecord > w.then:
		w.leapt = true
		at += page.TotalRecord - w.then
	default:
		w.back = max(w.back+w.size, w.then-page.TotalRecord)
		at -= w.back
		if w.back > farthest*w.size && w.back > 2*(w.then-page.TotalRecord) {
			at = 0
		}
	}
	if at <= 0 {
		w.anew++
		w.fixed = w.fixed || w.anew > mostAnew
		return w.ask(window{1, w.size}, true)
	}
	return w.ask(holding(at, w.size), false)
}

// holding is the window of at most size rows that has the at-th and as many behind it
// as can be.
func holding(at, size int) window {
	best := window{at/size + 1, size}
	for limit := size - 1; limit > best.to()-at; limit-- {
		if v := (window{at/limit + 1, limit}); v.to() > best.to() {
			best = v
		}
	}
	return best
}
