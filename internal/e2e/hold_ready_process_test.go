package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"errand/internal/sandbox"
)

// untilNotReady waits until a program says that it is not ready, in these words and since
// when.
func (in *installation) untilNotReady(p *process, words ...string) {
	in.t.Helper()
	in.until(p.name+" to serve", time.Minute, func() bool { return p.logged("admin server listens") })
	status, page := 0, ""
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); wait(in.t.Context(), 500*time.Millisecond) {
		status, page = p.get("/readyz")
		missing := func(word string) bool { return !strings.Contains(page, word) }
		if status == http.StatusServiceUnavailable && !slices.ContainsFunc(words, missing) && strings.Contains(page, "since") {
			return
		}
	}
	in.t.Fatalf("/readyz of %s answers %d %q, want 503, since when, and %q", p.name, status, page, words)
}

// The address of the service has a path too much, as the one that the sandbox prints has:
// the program says at /readyz what the service answers, no request fails, and all of
// them succeed once the address is right.
func TestAWrongPathShowsInReadinessAndFailsNothing(t *testing.T) {
	for _, c := range writes {
		t.Run(c.program, func(t *testing.T) {
			const n = 40
			in := install(t)
			for i := range n {
				in.publish(c.Requested(), c.request(fmt.Sprint("r", i)))
			}
			p := in.start(c.program, map[*operation]string{enrollOp: "MANDATE_API_URL=" + in.web.URL + "/v3/mandates", sendOp: "MAIL_API_URL=" + in.web.URL + "/api/v0/messages"}[c])
			in.untilNotReady(p, c.call, "404")
			wait(t.Context(), 3*time.Second) // three intervals between probes
			p.stop(time.Minute)
			for subject, n := range in.subjects(c.events()) {
				if (event{Subject: subject}).final() {
					t.Errorf("%d %s", n, subject)
				}
			}
			if left, dead := in.unsettled(c.queue), in.count("dead.>"); left != n || dead != 0 {
				t.Fatalf("%d of %d requests left, %d dead letters\n%s", left, n, dead, in.lastOutput())
			}
			p = in.start(c.program)
			in.untilReady(p)
			in.until("all to succeed", time.Minute, func() bool { return in.count(c.good()) == n })
			p.stop(time.Minute)
		})
	}
}

// The service takes calls and does not answer: the program says so at /readyz, and the
// rest of the queue is there when it answers again.
func TestAHangingUpstreamShowsInReadinessAndKeepsTheQueue(t *testing.T) {
	for _, c := range writes {
		t.Run(c.program, func(t *testing.T) {
			const n, most = 60, 2 * 16 // CONCURRENCY, and those taken before the third was known
			in := install(t)
			in.fault(sandbox.Fault{Operation: "*", Kind: sandbox.Delay, Delay: sandbox.Duration(time.Hour)})
			for i := range n {
				in.publish(c.Requested(), c.request(fmt.Sprint("r", i), "on_unknown", "report"))
			}
			p := in.start(c.program)
			in.untilNotReady(p, c.call)
			wait(t.Context(), 5*time.Second) // two calls of UPSTREAM_TIMEOUT each
			spent := int(in.calls(c.call))
			if spent > most {
				t.Errorf("%d calls of unknown fate for %d requests, want at most %d", spent, n, most)
			}
			in.box.ClearFaults()
			in.untilReady(p)
			in.until("the others to succeed", time.Minute, func() bool { return in.count(c.good()) >= n-spent })
			in.waitOutcomes(c.events(), n, 2*time.Minute)
			p.stop(time.Minute)
		})
	}
}
