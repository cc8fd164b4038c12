//go:build unix

package e2e

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"errand/internal/retry"
	"errand/internal/sandbox"
)

// gauges are what a program exports of itself by name and labels.
func (p *process) gauges() map[string]float64 {
	p.t.Helper()
	_, page := p.get("/metrics")
	out := map[string]float64{}
	for lines := bufio.NewScanner(strings.NewReader(page)); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if n, err := strconv.ParseFloat(value, 64); err == nil && strings.HasPrefix(name, "errand_") && !strings.Contains(name, "_bucket") {
			out[name] = n
		}
	}
	return out
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
	in.until(fmt.Sprint(want), 30*time.Second, func() bool {
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

// What a program is scaled by: a hand in a call is busy, one that waits to repeat a call
// is not.
func TestABusyHandIsOneInACall(t *testing.T) {
	const hands = 4
	in := install(t, "CONCURRENCY=4", "UPSTREAM_TIMEOUT=60s", "RETRY_FIRST=1m", "RETRY_MAX=1m")
	in.fault(sandbox.Fault{Operation: "enroll", Kind: sandbox.DelayAnswer, Match: "order-slow", Delay: sandbox.Duration(time.Hour)})
	in.fault(sandbox.Fault{Operation: "enroll", Kind: sandbox.Status, Match: "order-busy", Status: 503})
	p := in.start("mandate-consumer")
	in.until("it to be ready", 20*time.Second, func() bool { return p.says(`"message":"ready"`) })
	in.publish("mandate.enroll.requested", enrollment("busy"))
	in.publish("mandate.enroll.requested", enrollment("slow"))
	in.shows(p, map[string]float64{"errand_in_hand": 2, "errand_busy_ratio": 1.0 / hands, "errand_held": 0, enrollsPending: 0, enrollsTaken: 2})
	in.box.ClearFaults()
}

// A program that is held has nothing in hand however much waits; nor does one whose
// requests were all put back until later.
func TestWhatWaitsIsNotBusy(t *testing.T) {
	const waiting = 40
	in := install(t, "RETRY_MAX=20s", "RETRY_FIRST=10ms", "RETRY_TRIES=2")
	p := in.start("mandate-consumer")
	in.until("it to be ready", 20*time.Second, func() bool { return p.says(`"message":"ready"`) })

	// Put off one at a time with a success in between: none of them is taken for an outage.
	in.fault(sandbox.Fault{Operation: "enroll", Kind: sandbox.Status, Match: "order-later", Status: 429, Headers: map[string]string{"Retry-After": "600"}})
	const later = 5
	for i := range later {
		in.publish("mandate.enroll.requested", enrollment(fmt.Sprint("later", i)))
		in.until("it to be put off", 20*time.Second, func() bool { return in.count("mandate.enroll.deferred.*") == i+1 })
		in.publish("mandate.enroll.requested", enrollment(fmt.Sprint("well", i)))
		in.waitTold("mandate.enroll.succeeded.*", i+1, 20*time.Second)
	}
	in.shows(p, map[string]float64{"errand_ready": 1, "errand_in_hand": 0, "errand_busy_ratio": 0, "errand_held": 0, enrollsPending: 0, enrollsTaken: later})

	in.fault(sandbox.Fault{Operation: "enroll", Kind: sandbox.Status, Status: 401})
	in.publish("mandate.enroll.requested", enrollment("first"))
	in.until("it to be held", 20*time.Second, func() bool {
		status, why := p.get("/readyz")
		return status == http.StatusServiceUnavailable && strings.Contains(why, "held")
	})
	for i := range waiting {
		in.publish("mandate.enroll.requested", enrollment(fmt.Sprint("r", i)))
	}
	in.until("the backlog to show", 30*time.Second, func() bool { // some of it came to pulls that waited, and was put back
		got := p.gauges()
		return got[enrollsPending]+got[enrollsTaken] == later+1+waiting
	})
	in.shows(p, map[string]float64{"errand_ready": 0, "errand_in_hand": 0, "errand_busy_ratio": 0, "errand_held": 1})

	in.n.Stop()
	in.until("the backlog to be unknown", 30*time.Second, func() bool {
		_, told := p.gauges()[enrollsPending]
		return !told
	})
}

// An upstream that swallows connections keeps all hands busy until the program is held:
// the minute that the manifests wait before they add replicas must be longer.
func TestAnUpstreamThatCannotBeReachedHoldsWithinAMinute(t *testing.T) {
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
		if took := o.held[0].Sub(began); took > time.Minute {
			t.Errorf("it is held after %v", took)
		}
	})
}
