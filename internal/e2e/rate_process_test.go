//go:build linux

package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"errand/internal/bus"
	"errand/internal/sandbox/devkit/devtest"
)

// metered is an upstream that enrolls everybody, and when it was called.
func metered(t *testing.T) (*meter, string) {
	u := &upstream{script: func(exchange) reply {
		return reply{status: http.StatusOK, body: `{"url":"https://mandate.example.com/intent"}`}
	}}
	web := httptest.NewServer(u)
	t.Cleanup(web.Close)
	return newMeter(u), web.URL
}

// Of four replicas one is killed and one stands still for longer than a lease: the upstream
// never sees more than the rate, not when the one goes on either, and the others use what
// those have left. How much is said in virtual time: here a busy machine may make it less.
func TestTheFleetsRateOutlivesAKillAndAPause(t *testing.T) {
	const rate = 50
	m, url := metered(t)
	in := install(t, fmt.Sprint("FLEET_RATE=", rate), "MANDATE_API_URL="+url, "LOG_LEVEL=info")
	in.pile(bus.EnrollQueue, "r", 2000, enrollment)
	var all []*process
	for range 4 {
		all = append(all, in.start("mandate-consumer"))
	}
	for _, p := range all {
		in.until("each to have called", time.Minute, func() bool {
			return p.logged("admin server listens") && p.gauges()["errand_rate_leased_calls_total"] > 0
		})
	}
	m.began = time.Now()
	after := func(at time.Duration) {
		in.until(at.String(), time.Minute, func() bool { return time.Since(m.began) > at })
	}
	after(3 * time.Second)
	all[0].kill()
	after(7 * time.Second)
	all[1].pause()
	after(10 * time.Second)
	all[1].resume()
	after(14 * time.Second)
	for _, stretch := range [][2]time.Duration{{0, 3 * time.Second}, {3 * time.Second, 7 * time.Second}, {7 * time.Second, 10 * time.Second},
		{10 * time.Second, 14 * time.Second}} {
		t.Logf("%v: %.1f %% of the rate used", stretch, 100*float64(m.between(stretch[0], stretch[1]))/(rate*(stretch[1]-stretch[0]).Seconds()))
	}
	t.Logf("at most %d calls in a second, %d in five", m.most(time.Second), m.most(5*time.Second))
	m.wantWithin(t, rate, time.Second, 5*time.Second)
	in.until("the survivors to call on", time.Minute, func() bool { return m.between(10*time.Second, time.Minute) > rate })
	for _, p := range all[1:] {
		p.stop(time.Minute)
	}
}

// What the shipped configuration lets each program do suffices.
func TestEveryProgramLeasesAsItself(t *testing.T) {
	in := install(t, "FLEET_RATE=20")
	for _, program := range everyProgram {
		in.wantWorks(program)
	}
}

// A user from before there were rates may not lease: it takes an unchanged configuration of
// NATS to find out what is missing.
func TestAReplicaThatMayNotLeaseSaysWhichRightItLacks(t *testing.T) {
	parallel(t)
	for name, c := range map[string]struct{ without, says string }{
		"stream": {"$JS.API.STREAM.INFO.RATE_LEASES", `Publish to \"$JS.API.STREAM.INFO.RATE_LEASES\"`},
		"write":  {"rate.mandate-consumer", `Publish to \"rate.mandate-consumer\"`},
	} {
		t.Run(name, func(t *testing.T) {
			config := natsConfig(t)
			fatalIf(t, !strings.Contains(config, c.without), "the shipped configuration has no %q", c.without)
			n := devtest.Configured(t, strings.Replace(config, `"`+c.without+`"`, "", 1))
			in := newInstallation(t, releaseBuild.programs(t), n.URL, "FLEET_RATE=1") // it is not closed, as one that is refused nothing
			in.provision(connect(t, n.URL), 1)
			p := in.start("mandate-consumer")
			t.Cleanup(p.kill)
			in.until("it to say what it lacks", time.Minute, func() bool {
				return p.logged(c.says, "deploy/nats/errand.conf")
			})
			status, body := p.get("/readyz")
			errorIf(t, status != http.StatusServiceUnavailable, "/readyz: %d %s", status, body)
		})
	}
}
