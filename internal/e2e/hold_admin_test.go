package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"errand/internal/bus"
	"errand/internal/sandbox"
)

// Who is on call sees at /readyz which service does not let us in, and an alert sees
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
		status             int
		says, metric       string
	}{
		{"mandate-consumer", "enroll", 401, "held: mandate service (enroll) answers 401: credentials, account or quota", `errand_held{operation="mandate.enroll"}`},
		{"mail-consumer", "send", 402, "held: email service (send) answers 402: credentials, account or quota", `errand_held{operation="mail.send"}`},
		{"mail-consumer", "send", 503, "held: email service (send) answers 503: overloaded or out of order", `errand_held{operation="mail.send"}`},
		{"log-poller", "logs", 401, "email service (logs) answers 401", ""},
		{"log-poller", "logs", 503, "email service (logs): no sweep came through lately", ""},
	} {
		t.Run(c.program+" "+http.StatusText(c.status), func(t *testing.T) {
			in.fault(sandbox.Fault{Operation: c.operation, Kind: sandbox.Status, Status: c.status})
			p := in.start(c.program)
			defer p.kill()
			ask()
			shows := func(status int, text, held string) func() bool {
				return func() bool {
					if !p.logged("admin server listens") {
						return false
					}
					got, page := p.get("/readyz")
					_, metrics := p.get("/metrics")
					return got == status && strings.Contains(page, text) && (c.metric == "" || strings.Contains(metrics, "\n"+c.metric+" "+held+"\n"))
				}
			}
			in.until("it to say why it is not ready", time.Minute, shows(http.StatusServiceUnavailable, c.says, "1"))
			other := in.start(c.program)
			in.until("another one to say so", time.Minute, func() bool { return other.logged("held: no more requests") || other.logged("sweep: failed") })
			other.stop(time.Minute)
			in.box.ClearFaults()
			ask() // those before may have to wait for their own time
			in.until("it to be ready again", time.Minute, shows(http.StatusOK, "ready", "0"))
			p.stop(time.Minute)
		})
	}
}

// A pause is wanted: the program can work, says what is paused and until when, and takes no
// request of it until that is over.
func TestAPauseShowsInReadinessAndMetrics(t *testing.T) {
	in := install(t)
	p := in.start("mandate-consumer")
	shows := func(text, paused string) func() bool {
		return func() bool {
			if !p.logged("admin server listens") {
				return false
			}
			status, page := p.get("/readyz")
			_, metrics := p.get("/metrics")
			return status == http.StatusOK && strings.Contains(page, text) && strings.Contains(metrics, "\nerrand_queue_paused{operation=\"mandate.enroll\"} "+paused+"\n")
		}
	}
	in.until("it to be ready", time.Minute, shows("ready\n", "0"))
	if _, err := in.js.PauseConsumer(t.Context(), bus.MandateRequests, "mandate-enroll", time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	in.publish("mandate.enroll.requested", enrollment("r1"))
	in.until("it to say that it is paused", time.Minute, shows("ready\nmandate.enroll is paused until "+time.Now().UTC().Add(time.Hour).Format("2006-"), "1"))
	if n := in.count("mandate.enroll.started.*"); n > 0 {
		t.Errorf("%d requests were started during the pause", n)
	}
	if _, err := in.js.ResumeConsumer(t.Context(), bus.MandateRequests, "mandate-enroll"); err != nil {
		t.Fatal(err)
	}
	in.until("the request to be done", time.Minute, func() bool { return in.count("mandate.enroll.succeeded.*") == 1 })
	p.stop(time.Minute)
}
