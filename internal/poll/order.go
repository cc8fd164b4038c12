package poll

import (
	"time"

	"errand/pkg/clients/mail"
)

// order is the order in which a log lists its rows.
type order int

const (
	undecided order = iota // not known yet
	newestFirst
	oldestFirst
	unordered
)

// found reports whether the log is sorted by time.
func (o order) found() bool { return o == newestFirst || o == oldestFirst }

func (o order) String() string {
	return [...]string{"undecided", "newest first", "oldest first", "unordered"}[o]
}

// compass finds the order of a log from the times of its rows. Times that are out of
// order by less than tolerance are accepted: the clocks of servers that write the same
// log do not agree to the second.
type compass struct {
	tolerance time.Duration

	steps, up, down      int // pairs of neighbours compared; ascending ones; descending ones
	notNewest, notOldest bool
	last, low, high      time.Time
}

// enough is the number of pairs to compare before an order is believed: a log without
// order may begin with a few rows in order.
const enough = 20

// add adds the times of a page's rows. joined: they directly follow the rows added
// before.
func (c *compass) add(times []time.Time, joined bool) {
	for i, t := range times {
		if i == 0 && (!joined || c.last.IsZero()) {
			c.low, c.high, c.last = t, t, t
			continue
		}
		c.steps++
		switch {
		case t.After(c.last):
			c.up++
		case t.Before(c.last):
			c.down++
		}
		c.notNewest = c.notNewest || t.After(c.low.Add(c.tolerance))
		c.notOldest = c.notOldest || t.Before(c.high.Add(-c.tolerance))
		c.last = t
		if t.Before(c.low) {
			c.low = t
		}
		if t.After(c.high) {
			c.high = t
		}
	}
}

// order is the order of the pages so far. Once unordered, a log stays unordered.
func (c *compass) order() order {
	switch {
	case c.notNewest && c.notOldest:
		return unordered
	case c.steps < enough:
		return undecided
	case c.notOldest, !c.notNewest && c.down > 9*c.up:
		return newestFirst
	case c.notNewest, c.up > 9*c.down:
		return oldestFirst
	}
	return undecided
}

// timesOf returns a time for each row of a page, or nil if no row has one. A row whose
// own time is missing, or more than a day after now, gets that of a neighbour.
func timesOf(rows []mail.Entry, now time.Time) []time.Time {
	var times []time.Time
	good := -1
	for i, row := range rows {
		if row.CreatedAt.IsZero() || row.CreatedAt.After(now.Add(24*time.Hour)) {
			if good >= 0 {
				times[i] = times[good]
			}
			continue
		}
		if times == nil {
			times = make([]time.Time, len(rows))
		}
		times[i] = row.CreatedAt
		for j := good + 1; j < i && good < 0; j++ {
			times[j] = row.CreatedAt
		}
		good = i
	}
	return times
}
