package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"errand/internal/retry"
	"errand/internal/sandbox"
)

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
	enrollsPending = `errand_queue_pending{operation="mandate.enroll"}`
	enrollsTaken   = `errand_queue_ack_pending{operation="mandate.enroll"}`
)

// What a program is scaled by: a worker in a call is busy, one that waits to repeat a call
// is not.
func TestABusyWorkerIsOneInACall(t *testing.T) {
	const workers = 4
	in := install(t, "CONCURRENCY=4", "UPSTREAM_TIMEOUT=60s", "RETRY_FIRST=1m", "RETRY_MAX=1m")
	in.fault(sandbox.Fault{Operation: "enroll", Kind: sandbox.DelayAnswer, Match: "order-slow", Delay: sandbox.Duration(time.Hour)})
	in.fault(sandbox.Fault{Operation: "enroll", Kind: sandbox.Status, Match: "order-busy", Status: 503})
	p := in.start("mandate-consumer")
	in.until("it to be ready", time.Minute, func() bool { return p.logged(`"message":"ready"`) })
	in.publish("mandate.enroll.requested", enrollment("busy"))
	in.publish("mandate.enroll.requested", enrollment("slow"))
	in.shows(p, map[string]float64{"errand_requests_in_flight": 2, "errand_busy_ratio": 1.0 / workers, `errand_held{operation="mandate.enroll"}`: 0, enrollsPending: 0, enrollsTaken: 2})
	in.box.ClearFaults()
}

// A program that is held has nothing in flight however much waits; nor does one whose
// requests were all delayed.
func TestWhatWaitsIsNotBusy(t *testing.T) {
	const waiting = 40
	in := install(t, "RETRY_MAX=20s", "RETRY_FIRST=10ms", "RETRY_TRIES=2")
	p := in.start("mandate-consumer")
	in.until("it to be ready", time.Minute, func() bool { return p.logged(`"message":"ready"`) })

	// Deferred one at a time with a success in between: none of them is taken for an outage.
	in.fault(sandbox.Fault{Operation: "enroll", Kind: sandbox.Status, Match: "order-later", Status: 429, Headers: map[string]string{"Retry-After": "600"}})
	const later = 5
	for i := range later {
		in.publish("mandate.enroll.requested", enrollment(fmt.Sprint("later", i)))
		in.until("it to be deferred", time.Minute, func() bool { return in.count("mandate.enroll.deferred.*") == i+1 })
		in.publish("mandate.enroll.requested", enrollment(fmt.Sprint("well", i)))
		in.waitOutcomes("mandate.enroll.succeeded.*", i+1, time.Minute)
	}
	in.shows(p, map[string]float64{"errand_ready": 1, "errand_requests_in_flight": 0, "errand_busy_ratio": 0, `errand_held{operation="mandate.enroll"}`: 0, enrollsPending: 0, enrollsTaken: later})

	in.fault(sandbox.Fault{Operation: "enroll", Kind: sandbox.Status, Status: 401})
	in.publish("mandate.enroll.requested", enrollment("first"))
	in.publish("mandate.enroll.requested", enrollment("second"))
	in.until("it to be held", time.Minute, func() bool {
		status, why := p.get("/readyz")
		return status == http.StatusServiceUnavailable && strings.Contains(why, "held")
	})
	for i := range waiting {
		in.publish("mandate.enroll.requested", enrollment(fmt.Sprint("r", i)))
	}
	in.until("the backlog to show", time.Minute, func() bool { // some of it came to pulls that waited, and was delayed
		got := p.gauges()
		return got[enrollsPending]+got[enrollsTaken] == later+2+waiting
	})
	in.shows(p, map[string]float64{"errand_ready": 0, "errand_requests_in_flight": 0, "errand_busy_ratio": 0, `errand_held{operation="mandate.enroll"}`: 1})

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
		for i := range 20 {
			b.publish("mandate.enroll.requested", enrollment(fmt.Sprint("r", i)))
		}
		began := time.Now()
		b.run(p, 5*time.Minute, func() bool { o.mu.Lock(); defer o.mu.Unlock(); return len(o.held) > 0 })
		if len(o.held) == 0 {
			t.Fatalf("it is not held after %v", time.Since(began))
		}
		if took := o.held[0].Sub(began); took > 75*time.Second {
			t.Errorf("it is held after %v", took)
		}
	})
}
