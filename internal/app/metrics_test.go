package app

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A request that makes several calls at once is still one busy worker; one that waits for
// a retry is none.
func TestBusyWorkersAreRequestsInCalls(t *testing.T) {
	for _, c := range []struct {
		one, other int
		calls      int64
		want       float64
	}{{0, 0, 0, 0}, {2, 0, 8, 0.5}, {2, 1, 1, 0.25}, {3, 1, 4, 1}, {0, 1, 1, 0.25}} {
		calls := new(atomic.Int64)
		calls.Store(c.calls)
		h := workers{4, []func() int{func() int { return c.one }, func() int { return c.other }}, calls}
		if got := h.busyRatio(); got != c.want {
			t.Errorf("%d and %d in flight, %d calls: %v, want %v", c.one, c.other, c.calls, got, c.want)
		}
	}
}

// What alerts look for exists from the start: a counter at zero, and a lag that grows until
// the first sweep is complete.
func TestAPollerIsMeasuredBeforeItsFirstSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMetrics()
		m.ofDeliveries()
		time.Sleep(time.Hour)
		families, err := m.registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]float64{}
		for _, f := range families {
			for _, one := range f.GetMetric() {
				found[f.GetName()] += one.GetGauge().GetValue() + one.GetCounter().GetValue() + float64(one.GetHistogram().GetSampleCount())
			}
		}
		for name, want := range map[string]float64{"errand_poll_lag_seconds": 3600, "errand_deliveries_total": 0, "errand_upstream_call_duration_seconds": 0} {
			if got, there := found[name]; !there || got != want {
				t.Errorf("%s is %v (%v), want %v", name, got, there, want)
			}
		}
	})
}
