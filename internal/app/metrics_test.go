package app

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"
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

// A copy counts while it follows the leader; without a report nothing is shown of a stream.
func TestStreamsShowTheirSizeAndTheCopiesThatFollow(t *testing.T) {
	m := newMetrics()
	m.ofStreams([]string{"A", "B"}, func() map[string]error { return map[string]error{"B": errors.New("full")} })
	peers := []*jetstream.PeerInfo{{Current: true}, {Current: true, Offline: true}, {}}
	m.streams.set(map[string]*jetstream.StreamInfo{
		"A": {Config: jetstream.StreamConfig{MaxBytes: -1, Replicas: 1}, State: jetstream.StreamState{Bytes: 10}},
		"B": {Config: jetstream.StreamConfig{MaxBytes: 30, Replicas: 4}, State: jetstream.StreamState{Bytes: 20}, Cluster: &jetstream.ClusterInfo{Replicas: peers}},
	})
	want := map[string]float64{
		"errand_stream_bytes A": 10, "errand_stream_max_bytes A": 0, "errand_stream_replicas A": 1, "errand_stream_replicas_current A": 1, "errand_stream_fault A": 0,
		"errand_stream_bytes B": 20, "errand_stream_max_bytes B": 30, "errand_stream_replicas B": 4, "errand_stream_replicas_current B": 2, "errand_stream_fault B": 1,
	}
	if diff := cmp.Diff(want, streamValues(t, m)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	m.streams.set(nil)
	if diff := cmp.Diff(map[string]float64{"errand_stream_fault A": 0, "errand_stream_fault B": 1}, streamValues(t, m)); diff != "" {
		t.Errorf("no answer (-want +got):\n%s", diff)
	}
}

// streamValues are the metrics about streams, by name and stream.
func streamValues(t *testing.T, m *metrics) map[string]float64 {
	t.Helper()
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, one := range f.GetMetric() {
			if strings.HasPrefix(f.GetName(), "errand_stream_") {
				out[f.GetName()+" "+one.GetLabel()[0].GetValue()] = one.GetGauge().GetValue()
			}
		}
	}
	return out
}
