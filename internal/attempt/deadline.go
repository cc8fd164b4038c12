package attempt

import "time"

// deadline holds by two clocks: the wall clock, which others read, and the monotonic one,
// which stands still while the machine is suspended and cannot be set.
type deadline struct{ wall, monotonic time.Time }

func newDeadline(d time.Duration) deadline {
	t := time.Now().Add(d)
	return deadline{wall: t.Round(0), monotonic: t}
}

// outlasts reports whether d from now on is not too long by either clock.
func (l deadline) outlasts(now time.Time, d time.Duration) bool {
	return !now.Add(d).After(l.monotonic) && !now.Round(0).Add(d).After(l.wall)
}

func (l deadline) passed(now time.Time) bool { return !l.outlasts(now, 0) }
