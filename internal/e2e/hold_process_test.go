package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"errand/internal/bus"
	"errand/internal/retry"
	"errand/internal/sandbox"
)

// A person on call sees at /readyz which service does not let us in, and an alert sees
// it in the metrics; both end by themselves. A program that is held ends at once.
func TestHoldShowsInReadinessAndMetrics(t *testing.T) {
	in := install(t, "RETRY_MAX=200ms", "RETRY_TRIES=2")
	asked := 0
	ask := func() {
		for range 5 {
			asked++
			in.publish("mandate.enroll.requested", enrollment(fmt.Sprint("r", asked)))
			in.publish("mail.send.requested", message(fmt.Sprint("m", asked), 1))
		}
	}
	for _, c := range []struct {
		program, operation string
		fault              sandbox.Fault
		says               string
	}{
		{"mandate-consumer", "enroll", answering(401), "held: mandate service (enroll) answers 401: credentials, account or quota"},
		{"mandate-consumer", "enroll", answering(404), "held: mandate service (enroll) answers 404"},
		{"mail-consumer", "send", answering(402), "held: email service (send) answers 402: credentials, account or quota"},
		{"mail-consumer", "send", answering(503), "held: email service (send) answers 503: overloaded or out of order"},
		{"log-poller", "logs", answering(401), "email service (logs) answers 401"},
		{"log-poller", "logs", answering(503), "email service (logs): no sweep came through lately"},
	} {
		t.Run(fmt.Sprint(c.program, " ", c.fault.Kind, " ", c.fault.Status), func(t *testing.T) {
			c.fault.Operation = c.operation
			in.fault(c.fault)
			metric := map[string]string{"enroll": `errand_held{operation="mandate.enroll"}`,
				"send": `errand_held{operation="mail.send"}`}[c.operation]
			p := in.start(c.program)
			defer p.kill()
			ask()
			shows := func(status int, held float64, words ...string) func() bool {
				return func() bool { return p.says(status, words...)() && (metric == "" || p.gauges()[metric] == held) }
			}
			words := []string{c.says}
			if metric != "" {
				words = append(words, "since")
			}
			in.until("it to say why it is not ready", time.Minute, shows(http.StatusServiceUnavailable, 1, words...))
			other := in.start(c.program)
			in.until("another one to say so", time.Minute, func() bool {
				return other.logged("held: no more requests") || other.logged("sweep: failed")
			})
			other.stop(time.Minute)
			in.box.ClearFaults("*")
			ask() // those before may have to wait for their own time
			in.until("it to be ready again", time.Minute, shows(http.StatusOK, 0, "ready"))
			p.stop(time.Minute)
		})
	}
}

// answering is a fault that answers a status.
func answering(status int) sandbox.Fault { return sandbox.Fault{Kind: sandbox.Status, Status: status} }

// A pause is wanted: the program can work, says what is paused and until when, and takes no
// request of it until that is over.
func TestAPauseShowsInReadinessAndMetrics(t *testing.T) {
	in := install(t)
	p := in.start("mandate-consumer")
	shows := func(text string, paused float64) func() bool {
		return func() bool {
			return p.says(http.StatusOK, text)() && p.gauges()[`errand_queue_paused{lane="default",operation="mandate.enroll"}`] == paused
		}
	}
	in.until("it to be ready", time.Minute, shows("ready\n", 0))
	_, err := in.js.PauseConsumer(t.Context(), bus.MandateRequests, "mandate-enroll", time.Now().Add(time.Hour))
	must(t, err)
	in.publish("mandate.enroll.requested", enrollment("r1"))
	in.until("it to say that it is paused", time.Minute,
		shows("ready\nmandate.enroll is paused until "+time.Now().UTC().Add(time.Hour).Format("2006-"), 1))
	n := in.count("mandate.enroll.started.*")
	errorIf(t, n > 0, "%d requests were started during the pause", n)
	_, err = in.js.ResumeConsumer(t.Context(), bus.MandateRequests, "mandate-enroll")
	must(t, err)
	in.until("the request to be done", time.Minute, func() bool { return in.count("mandate.enroll.succeeded.*") == 1 })
	p.stop(time.Minute)
}

// shows waits until the program exports all of want.
func (in *installation) shows(p *process, want map[string]float64) {
	in.t.Helper()
	var got map[string]float64
	defer func() {
		if in.t.Failed() {
			in.t.Logf("want %v, got %v", want, got)
		}
	}()
	in.until(fmt.Sprint(want), time.Minute, func() bool {
		got = p.gauges()
		for name, value := range want {
			if n, there := got[name]; !there || n != value {
				return false
			}
		}
		return true
	})
}

const (
	enrollsPending = `errand_queue_pending{lane="default",operation="mandate.enroll"}`
	enrollsTaken   = `errand_queue_ack_pending{lane="default",operation="mandate.enroll"}`
)

// What a program is scaled by: a worker in a call is busy, one that waits to repeat a call is not.
func TestABusyWorkerIsOneInACall(t *testing.T) {
	const workers = 4
	in := install(t, "CONCURRENCY=4", "UPSTREAM_TIMEOUT=60s", "RETRY_FIRST=1m", "RETRY_MAX=1m")
	in.fault(sandbox.Fault{Operation: "enroll", Kind: sandbox.DelayAnswer, Match: "order-slow", Delay: sandbox.Duration(time.Hour)})
	in.fault(sandbox.Fault{Operation: "enroll", Kind: sandbox.Status, Match: "order-busy", Status: 503})
	p := in.start("mandate-consumer")
	in.untilReady(p)
	in.publish("mandate.enroll.requested", enrollment("busy"))
	in.publish("mandate.enroll.requested", enrollment("slow"))
	in.shows(p, map[string]float64{"errand_requests_in_flight": 2, "errand_busy_ratio": 1.0 / workers,
		`errand_held{operation="mandate.enroll"}`: 0, enrollsPending: 0, enrollsTaken: 2})
	in.box.ClearFaults("*")
}

// A program that is held has nothing in flight however much waits; nor does one whose requests were all delayed.
func TestWhatWaitsIsNotBusy(t *testing.T) {
	const waiting = 40
	in := install(t, "RETRY_MAX=20s", "RETRY_FIRST=10ms", "RETRY_TRIES=2")
	p := in.start("mandate-consumer")
	in.untilReady(p)

	// Deferred one at a time with a success in between: they are not taken for an outage.
	in.fault(sandbox.Fault{Operation: "enroll", Kind: sandbox.Status, Match: "order-later", Status: 429,
		Headers: map[string]string{"Retry-After": "600"}})
	const later = 5
	for i := range later {
		in.publish("mandate.enroll.requested", enrollment(fmt.Sprint("later", i)))
		in.until("it to be deferred", time.Minute, func() bool { return in.count("mandate.enroll.deferred.*") == i+1 })
		in.publish("mandate.enroll.requested", enrollment(fmt.Sprint("well", i)))
		in.waitOutcomes("mandate.enroll.succeeded.*", i+1, time.Minute)
	}
	in.shows(p, map[string]float64{"errand_ready": 1, "errand_requests_in_flight": 0, "errand_busy_ratio": 0,
		`errand_held{operation="mandate.enroll"}`: 0, enrollsPending: 0, enrollsTaken: later})

	in.fault(sandbox.Fault{Operation: "enroll", Kind: sandbox.Status, Status: 401})
	in.publish("mandate.enroll.requested", enrollment("first"))
	in.publish("mandate.enroll.requested", enrollment("second"))
	in.until("it to be held", time.Minute, p.says(http.StatusServiceUnavailable, "held"))
	in.request(enrollOp, "r", waiting)
	in.until("the backlog to show", time.Minute, func() bool { // some of it came to pulls that waited, and was delayed
		got := p.gauges()
		return got[enrollsPending]+got[enrollsTaken] == later+2+waiting
	})
	in.shows(p, map[string]float64{"errand_ready": 0, "errand_requests_in_flight": 0, "errand_busy_ratio": 0,
		`errand_held{operation="mandate.enroll"}`: 1})

	in.nats.Stop()
	in.until("the backlog to be unknown", time.Minute, func() bool {
		_, shown := p.gauges()[enrollsPending]
		return !shown
	})
}

// An upstream that swallows connections keeps all workers busy until the program is held:
// the minute and a half that the manifests wait before they add replicas must be longer.
func TestAnUpstreamThatCannotBeReachedHoldsBeforeReplicasAreAdded(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		p, o := b.mandates(), &outage{}
		o.on(b, &p.Common, time.Hour)
		p.Transport = &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			retry.Pause(ctx, 10*time.Second) // as long as the clients try
			return nil, &net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}
		}}
		b.request(enrollOp, "r", 20)
		began := time.Now()
		b.run(p, 5*time.Minute, func() bool { o.mu.Lock(); defer o.mu.Unlock(); return len(o.held) > 0 })
		fatalIf(t, len(o.held) == 0, "it is not held after %v", time.Since(began))
		took := o.held[0].Sub(began)
		errorIf(t, took > 75*time.Second, "it is held after %v", took)
	})
}
