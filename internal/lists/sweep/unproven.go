package sweep

import "maps"

// unproven is states that count as new though they are known, extra or of a failed sweep: rows behind them may be unknown.
type unproven struct {
	from      map[uint64]int // the sweep from which on one does
	number    int            // of the sweep that is under way, or was the last
	extraRows bool           // extra rows are being stored
}

// doubt notes a state that was stored. It counts at once, or in the next sweep if this one fails.
func (u *unproven) doubt(id ID) {
	if u.from[id.short()] = u.number + 1; u.extraRows {
		u.from[id.short()] = u.number
	}
}

// isUnproven reports whether a state that a page shows counts as new.
func (u *unproven) isUnproven(id ID) bool {
	from, ok := u.from[id.short()]
	return ok && from <= u.number
}

// prove forgets, after a sweep that came through, all but what was published from extra rows meanwhile.
func (u *unproven) prove() {
	maps.DeleteFunc(u.from, func(_ uint64, from int) bool { return from != u.number })
}
