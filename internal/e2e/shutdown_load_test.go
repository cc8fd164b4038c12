package e2e

import (
	"fmt"
	"net/http"
	"runtime"
	"testing"
	"time"

	"errand/internal/bus"
	"errand/internal/sandbox"
	"errand/pkg/messages"
)

// A program is asked to end with all workers in calls of a second and a half: the calls
// end, their outcomes are stored, nothing comes back, and a second run does the rest.
func TestSIGTERMUnderLoadExitsWithZero(t *testing.T) {
	const requests, workers = 30, 8 // up to a quarter more requests wait for a call's end
	in := install(t, "CONCURRENCY=8", "UPSTREAM_TIMEOUT=10s")
	in.latency(1500 * time.Millisecond)
	in.publishRequests(requests)
	for _, c := range writes {
		p := in.start(c.program)
		in.until("all workers full", time.Minute, func() bool { return in.calls(c.call) >= workers })
		status, body := p.get("/readyz")
		errorIf(t, status != http.StatusOK, "%s is not ready: %d %s", p.name, status, body)
		n := p.gauges()["errand_requests_in_flight"]
		errorIf(t, n < workers || n > workers+workers/4, "%s has %v in flight, want %d to a quarter more", p.name, n, workers)
		in.until("all workers full again", time.Minute, func() bool { return in.calls(c.call) >= 2*workers })
		p.stop(20 * time.Second) // hits the calls at their beginning

		// The server has every acknowledgement when the program ends, and works them off after that.
		for end := time.Now().Add(time.Minute); in.queue(c.queue).NumAckPending != 0 && time.Now().Before(end); {
			runtime.Gosched()
		}
		if q := in.queue(c.queue); q.NumRedelivered != 0 || q.NumAckPending != 0 || q.Delivered.Consumer != q.AckFloor.Consumer {
			t.Errorf("%s after SIGTERM: %d redelivered, %d in flight, %d of %d deliveries acknowledged", c.queue.Name,
				q.NumRedelivered, q.NumAckPending, q.AckFloor.Consumer, q.Delivered.Consumer)
		}
		p = in.start(c.program)
		in.waitOutcomes(c.events(), requests, time.Minute)
		p.stop(20 * time.Second)
		if q := in.queue(c.queue); q.Delivered.Consumer != requests || in.unsettled(c.queue) != 0 {
			t.Errorf("%s: %d deliveries of %d requests, %d left", c.queue.Name, q.Delivered.Consumer, requests, in.unsettled(c.queue))
		}
		if well, calls := in.count(c.good()), in.calls(c.call); well != requests || calls != requests {
			t.Errorf("%d of %d requests ended well, with %d calls", well, requests, calls)
		}
	}
}

// A message of many batches is nacked between two of them; no batch is uncertain.
func TestSIGTERMBetweenTwoBatchesLosesNone(t *testing.T) {
	const recipients, batches = 8000, 8
	in := install(t, "MAIL_BATCH_PARALLEL=2")
	in.latency(500 * time.Millisecond)
	in.publish("mail.send.requested", message("m1", recipients))
	for _, taken := range []int{0, 3} {
		p := in.start("mail-consumer")
		in.until("batches on their way", time.Minute, func() bool {
			return in.totals().Mail.Accepted >= taken && in.inFlight.Load() == 2
		})
		p.stop(20 * time.Second)
		errorIf(t, in.inFlight.Load() != 0, "it ended before its calls")
	}
	p := in.start("mail-consumer")
	in.waitOutcomes("mail.send.*.m1", 1, time.Minute)
	p.stop(20 * time.Second)
	e := in.wantFinal("mail.send.*.m1")
	errorIf(t, e.state() != messages.Accepted || number(e.Body["accepted"]) != recipients, "body: %s", e.Raw)
	in.wantBatchesMatchOracle("m1", recipients, batches)
	if o := in.totals(); o.Calls["send"] != batches || o.Mail.TwiceCount != 0 {
		t.Errorf("%d calls for %d batches, %d served twice", o.Calls["send"], batches, o.Mail.TwiceCount)
	}
}

// Three replicas are replaced one after the other, over and over, while the queue stays full and calls take 0 to 200
// ms. Nothing is taken twice: each request is delivered once, called once, and has one outcome.
func TestRollingRestartRedeliversNothing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ workers, waiting, rounds int }{{2, 20, 3}, {16, 200, 5}} {
		t.Run(fmt.Sprint("CONCURRENCY=", c.workers), func(t *testing.T) {
			in := install(t, fmt.Sprint("CONCURRENCY=", c.workers))
			for i, delay := range []time.Duration{50, 100, 200} {
				in.fault(sandbox.Fault{Operation: "enroll", Kind: sandbox.Delay, Delay: sandbox.Duration(delay * time.Millisecond), Share: 0.3,
					Seed: uint64(i + 1)})
			}
			published := 0
			fill := func() {
				for range c.waiting - in.unsettled(bus.EnrollQueue) { // looked at once: programs may be faster than this
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
