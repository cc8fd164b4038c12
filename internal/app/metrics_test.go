package app

import (
	"sync/atomic"
	"testing"
)

// A request may make several calls at once, and is one hand all the same; one that waits
// to be called again is none.
func TestBusyHandsAreRequestsInCalls(t *testing.T) {
	for _, c := range []struct {
		one, other int
		calls      int64
		want       float64
	}{{0, 0, 0, 0}, {2, 0, 8, 0.5}, {2, 1, 1, 0.25}, {3, 1, 4, 1}, {0, 1, 1, 0.25}} {
		calls := new(atomic.Int64)
		calls.Store(c.calls)
		h := hands{4, []func() int{func() int { return c.one }, func() int { return c.other }}, calls}
		if got := h.busy(); got != c.want {
			t.Errorf("%d and %d in hand, %d calls: %v, want %v", c.one, c.other, c.calls, got, c.want)
		}
	}
}
