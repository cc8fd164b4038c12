package throttle

import (
	"context"
	"errors"
	"testing"
	"time"
)

// With both limits, the replica's own holds too when the fleet's kept its callers waiting.
func TestAReplicaSavesNoCallsUpWhileItWaitsForTheFleet(t *testing.T) {
	for _, c := range []struct{ own, fleet float64 }{{1, 50}, {5, 10}, {20, 20}, {50, 10}} {
		inFleet(t, c.fleet, func(f *fleet) {
			r := f.start(0)
			limit := &Limit{Replica: NewReplica(c.own), Fleet: r.Fleet, Waited: func(time.Duration) {}}
			ctx, end := context.WithCancel(f.t.Context())
			for range 64 {
				f.all.Go(func() {
					for limit.Wait(ctx) == nil {
						f.mu.Lock()
						f.calls = append(f.calls, time.Since(f.began))
						f.mu.Unlock()
					}
				})
			}
			f.until(20 * time.Second)
			r.set(errors.New("no answer"), 0)
			f.until(90 * time.Second)
			r.set(nil, 0)
			f.until(200 * time.Second)
			end()
			r.kill()
			f.perSecond = min(c.own, c.fleet)
			f.wantWithin(time.Second)
			f.wantWithin(10 * time.Second)
			f.wantUsed(time.Second, 20*time.Second)
			f.wantUsed(100*time.Second, 200*time.Second)
		})
	}
}
