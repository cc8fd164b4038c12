package deliveries

import (
	"sync"
	"time"
)

// clock measures how far the email service's clock is ahead of ours, by the Date header of its answers. Assumed: that
// is the clock by which the log's times are written, and the clocks of the mail consumer and the poller agree.
//
// A Date of whole seconds in an answer bounds the offset on both sides; answers narrow each other's bounds. If the clock was
// set, or has drifted, they leave nothing, and it starts over.
type clock struct {
	mu        sync.Mutex // pages are read while rows are matched
	low, high time.Duration
	measured  bool
}

// observe records the Date of an answer; an answer without one does not count.
func (c *clock) observe(asked, date, read time.Time) {
	if date.IsZero() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	low, high := date.Sub(read), date.Add(time.Second).Sub(asked)
	if c.measured && c.low <= high && low <= c.high {
		low, high = max(low, c.low), min(high, c.high)
	}
	c.low, c.high, c.measured = low, high, true
}

// offset is the middle of what the answers leave; 0 if among it.
func (c *clock) offset() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.low <= 0 && c.high >= 0 {
		return 0
	}
	return (c.low + c.high) / 2
}

// wrong reports whether an offset is so large that the answers' Date is as likely to be wrong as the rows' times.
func wrong(offset time.Duration) bool { return offset.Abs() > time.Hour }
