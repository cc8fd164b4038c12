package deliveries

import (
	"math"
	"slices"
	"sync"
	"time"
)

// clock measures how far the email service's clock is ahead of ours, by the Date header of its answers. Assumed: that
// is the clock by which the log's times are written, and the clocks of the mail consumer and the poller agree.
//
// A Date of whole seconds in an answer bounds the offset on both sides; the last answers narrow each other's bounds.
type clock struct {
	mu   sync.Mutex // pages are read while rows are matched
	last []bounds
}

type bounds struct{ low, high time.Duration }

// maxBounds is the number of answers that count: an offset that changes is noticed soon.
const maxBounds = 16

// observe records an answer with a Date; none counts for nothing.
func (c *clock) observe(asked, date, read time.Time) {
	if date.IsZero() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = append(c.last, bounds{date.Sub(read), date.Add(time.Second).Sub(asked)})
	c.last = c.last[max(0, len(c.last)-maxBounds):]
}

// offset is the middle of what all answers leave; 0 if among it. If the clock was set they leave nothing, and it starts over.
func (c *clock) offset() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := bounds{math.MinInt64, math.MaxInt64}
	for _, b := range slices.Backward(c.last) {
		both := bounds{max(b.low, all.low), min(b.high, all.high)}
		if both.low > both.high {
			break
		}
		all = both
	}
	if all.low <= 0 && all.high >= 0 {
		return 0
	}
	return (all.low + all.high) / 2
}

// wrong reports whether an offset is so large that the answers' Date is as likely to be wrong as the rows' times.
func wrong(offset time.Duration) bool { return offset.Abs() > time.Hour }
