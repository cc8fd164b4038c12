package poll

import (
	"time"

	"errand/pkg/clients/mail"
)

// order is which way a log runs.
type order int

const (
	undecided order = iota // nothing seen speaks for one or the other
	newestFirst
	oldestFirst
	unordered
)

// found reports whether the log runs one way or the other.
func (o order) found() bool { return o == newestFirst || o == oldestFirst }

func (o order) String() string {
	return [...]string{"undecided", "newest first", "oldest first", "unordered"}[o]
}

// compass finds the order of a log from the times of its rows, as a sweep sees
// them. Times that run the wrong way by less than tolerance are borne: servers
// that write one log do not agree to the second.
type compass struct {
	tolerance time.Duration

	steps, up, down      int // pairs of neighbours compared; those that went up, down
	notNewest, notOldest bool
	last, low, high      time.Time
}

// enough is how many pairs must have been compared before an order is believed: a
// log without order may begin with a few rows in order.
const enough = 20

// add takes the times of a page's rows. joined: they follow directly upon the rows
// added before.
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

// order is what the pages so far speak for. Once unordered, a log stays so.
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

// timesOf gives a time for each row of a page. A row whose own time cannot be
// right, since it is missing or lies more than a day ahead of now, has that of a
// neighbour. nil: no row has a time.
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
