package bus_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"errand/internal/bus"
	"errand/internal/sandbox/devkit/devtest"
	"errand/internal/throttle"
)

func TestOneOfTwoLeasesIsStored(t *testing.T) {
	_, nc := devtest.Provisioned(t)
	store := bus.LeaseStore{Publisher: newLog(t, nc).Publisher, Program: "mandate-consumer"}
	if last, err := store.Last(t.Context()); err != nil || last.Sequence != 0 {
		t.Fatalf("at first: %+v, %v", last, err)
	}
	began := time.Now()
	first, err := store.Store(t.Context(), []byte("first"), 0)
	if err != nil || string(first.Body) != "first" || first.At.Before(began.Round(0)) || first.Known.Before(first.At) {
		t.Fatalf("stored %+v, %v", first, err)
	}
	if _, err := store.Store(t.Context(), []byte("second"), 0); !errors.Is(err, throttle.ErrConflict) {
		t.Errorf("over one that is no longer the last: %v", err)
	}
	other := bus.LeaseStore{Publisher: newLog(t, nc).Publisher, Program: "mail-consumer"}
	if _, err := other.Store(t.Context(), []byte("another program's"), 0); err != nil {
		t.Errorf("of another program: %v", err)
	}
	if last, err := store.Last(t.Context()); err != nil || last.Sequence != first.Sequence || string(last.Body) != "first" {
		t.Errorf("at last: %+v, %v", last, err)
	}
}

// Replicas of the stream answer that lag behind, and another server becomes its leader.
func TestAFleetKeepsItsRateAtThreeServers(t *testing.T) {
	const rate = 40
	c := devtest.NewCluster(t)
	js := c.Replicate(bus.RateLeases)
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	var calls atomic.Int64
	for i := range 4 {
		fleet := throttle.NewFleet(rate, bus.LeaseStore{Publisher: newLog(t, c.Conns[i%3]).Publisher, Program: "mandate-consumer"}, zerolog.Nop())
		all.Go(func() { fleet.Run(ctx) })
		limit := &throttle.Limit{Fleet: fleet, Waited: func(time.Duration) {}}
		for range 8 {
			all.Go(func() {
				for limit.Wait(ctx) == nil {
					calls.Add(1)
				}
			})
		}
	}
	reach := func(n int64) {
		t.Helper()
		for end := time.Now().Add(time.Minute); calls.Load() < n; <-time.After(20 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%d calls, want %d", calls.Load(), n)
			}
		}
	}
	began := time.Now()
	reach(rate)
	if _, err := c.Conns[0].Request("$JS.API.STREAM.LEADER.STEPDOWN."+bus.RateLeases, nil, 5*time.Second); err != nil {
		t.Fatal(err)
	}
	c.Leader(js, bus.RateLeases)
	reach(4 * rate)
	took, n := time.Since(began), calls.Load()
	stop()
	all.Wait()
	t.Logf("%d calls in %v", n, took)
	if most := rate*took.Seconds() + 1 + rate; float64(n) > most {
		t.Errorf("%d calls in %v, want at most %.0f", n, took, most)
	}
}
