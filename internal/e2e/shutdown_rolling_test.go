package e2e

import (
	"fmt"
	"testing"
	"time"

	"errand/internal/bus"
	"errand/internal/sandbox"
)

// Three replicas are replaced one after the other, over and over, while the queue
// stays full and calls take 0 to 200 ms. Nothing is taken twice: each request is
// delivered once, called once, and has one outcome.
func TestRollingRestartRedeliversNothing(t *testing.T) {
	for _, c := range []struct{ workers, waiting, rounds int }{{2, 20, 3}, {16, 200, 5}} {
		t.Run(fmt.Sprint("CONCURRENCY=", c.workers), func(t *testing.T) {
			in := install(t, fmt.Sprint("CONCURRENCY=", c.workers))
			for i, delay := range []time.Duration{50, 100, 200} {
				in.fault(sandbox.Fault{Operation: "enroll", Kind: sandbox.Delay, Delay: sandbox.Duration(delay * time.Millisecond), Share: 0.3, Seed: uint64(i + 1)})
			}
			published := 0
			fill := func() {
				for in.unsettled(bus.EnrollQueue) < c.waiting {
					in.publish("mandate.enroll.requested", enrollment(fmt.Sprint("r", published)))
					published++
				}
			}
			working := func(p *process) func() bool {
				return func() bool { fill(); return p.logged(`"message":"settled"`) }
			}
			var replicas []*process
			for range 3 {
				replicas = append(replicas, in.start("mandate-consumer"))
			}
			for range c.rounds {
				for i, old := range replicas {
					in.until("the old one to work", time.Minute, working(old))
					replicas[i] = in.start("mandate-consumer")
					in.until("the new one to work", time.Minute, working(replicas[i]))
					old.stop(10 * time.Second)
				}
			}
			in.waitOutcomes("mandate.enroll.*.*", published, time.Minute)
			in.untilSettled(bus.EnrollQueue)
			for _, p := range replicas {
				p.stop(10 * time.Second)
			}
			in.wantOnce(bus.EnrollQueue, "mandate.enroll.succeeded.*", "enroll", published)
		})
	}
}
