//go:build unix

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
	for _, c := range []struct{ hands, waiting, rounds int }{{1, 5, 2}, {2, 20, 3}, {16, 200, 5}} {
		t.Run(fmt.Sprint("CONCURRENCY=", c.hands), func(t *testing.T) {
			in := install(t, fmt.Sprint("CONCURRENCY=", c.hands))
			for i, delay := range []time.Duration{50, 100, 200} {
				in.fault(sandbox.Fault{Operation: "enroll", Kind: sandbox.Delay, Delay: sandbox.Duration(delay * time.Millisecond), Share: 0.3, Seed: uint64(i + 1)})
			}
			published := 0
			fill := func() {
				for in.left(bus.EnrollQueue) < c.waiting {
					in.publish("mandate.enroll.requested", enrollment(fmt.Sprint("r", published)))
					published++
				}
			}
			working := func(p *process) func() bool {
				return func() bool { fill(); return p.says(`"message":"settled"`) }
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
			in.waitTold("mandate.enroll.*.*", published, time.Minute)
			in.until("an empty queue", 10*time.Second, func() bool { return in.left(bus.EnrollQueue) == 0 })
			for _, p := range replicas {
				p.stop(10 * time.Second)
			}
			in.wantOnce(bus.EnrollQueue, "mandate.enroll.succeeded.*", "enroll", published)
		})
	}
}

// wantOnce wants n requests, each delivered once, called once and told of once.
func (in *installation) wantOnce(queue bus.Queue, well, call string, n int) {
	in.t.Helper()
	if q := in.queue(queue); q.Delivered.Consumer != uint64(n) || q.Delivered.Stream != uint64(n) || q.NumRedelivered != 0 {
		in.t.Errorf("%s: %d deliveries of %d requests, %d waiting as redelivered", queue.Name, q.Delivered.Consumer, q.Delivered.Stream, q.NumRedelivered)
	}
	if told, calls := in.count(well), in.calls(call); told != n || calls != int64(n) {
		in.t.Errorf("%d requests: %d ended well, with %d calls", n, told, calls)
	}
}
