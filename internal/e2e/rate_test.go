package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"errand/internal/bus"
	"errand/internal/programs"
	"errand/internal/sandbox/devkit/devtest"
)

// replicas runs replicas of the mandate consumer with one rate for all, each until its time.
func (b *bubble) replicas(fleetRate float64, ends ...time.Duration) (wait func()) {
	var all sync.WaitGroup
	for _, end := range ends {
		p := b.mandates()
		p.FleetRate = fleetRate
		all.Go(func() {
			ctx, stop := context.WithTimeout(b.t.Context(), end)
			defer stop()
			err := p.Run(ctx)
			errorIf(b.t, err != nil, "%v\n%s", err, b.logs)
		})
	}
	return all.Wait
}

// Four replicas share a rate, and three when one has gone: all kinds of calls count, the
// enrollments and their retries, the look-ups of those whose fate is unknown, the lists.
func TestAllReplicasTogetherKeepTheFleetsRate(t *testing.T) {
	full(t)
	const rate, minute = 10, time.Minute
	inBubble(t, func(t *testing.T, b *bubble) {
		b.request(enrollOp, "r", 700)
		for i := range 40 {
			b.publish("mandate.transactions.requested", map[string]any{"request_id": fmt.Sprint("t", i), "max_pages": 2})
		}
		m := newMeter(b.upstream)
		var posts atomic.Int64
		b.script = func(x exchange) reply {
			switch n := posts.Add(1); {
			case !x.write():
				posts.Add(-1)
			case n%10 == 0:
				return reply{status: http.StatusInternalServerError} // of unknown fate
			case n%7 == 0:
				return reply{status: http.StatusServiceUnavailable}
			}
			return reply{}
		}
		b.replicas(rate, 20*time.Second, minute, minute, minute)()
		all, writes := len(m.at()), len(b.writes(""))
		errorIf(t, all-writes < 40 || writes < 200, "%d calls, %d of them submissions", all, writes)
		errorIf(t, b.queued() == 0, "there was not enough to do")
		m.wantWithin(t, rate, time.Second, 5*time.Second, 30*time.Second)
		m.wantUsed(t, rate, 2*time.Second, 20*time.Second)
		m.wantUsed(t, rate, 20*time.Second, minute-time.Second)
		said := b.logs.String()
		errorIf(t, strings.Contains(said, "held:"), "waiting began a hold:\n%s", said)
	})
}

// Each call after one of unknown fate is two, a look at the list and the call itself. Neither
// is saved up while the other one is waited for.
func TestLookUpsBeforeCallsKeepTheRate(t *testing.T) {
	full(t)
	const rate, while = 2, 5 * time.Minute
	for name, set := range map[string]func(*programs.MandateConsumer){
		"of the fleet":   func(p *programs.MandateConsumer) { p.FleetRate = rate },
		"of one replica": func(p *programs.MandateConsumer) { p.Rate = rate },
	} {
		runInBubble(t, name, func(t *testing.T, b *bubble) {
			b.request(enrollOp, "r", 300)
			m := newMeter(b.upstream)
			var posts atomic.Int64
			b.script = func(x exchange) reply {
				if x.write() && posts.Add(1)%3 != 0 {
					return reply{status: http.StatusInternalServerError} // of unknown fate
				}
				return reply{}
			}
			p := b.mandates()
			p.Concurrency = 64
			set(p)
			b.run(p, while, nil)
			reads := len(b.of("transactions"))
			errorIf(t, reads < 50, "%d reads", reads)
			m.wantWithin(t, rate, 2*time.Second, 10*time.Second, 30*time.Second)
		})
	}
}

// A replica's own rate holds for each kind of program.
func TestAReplicaKeepsItsRate(t *testing.T) {
	for _, c := range []struct {
		name    string
		rate    float64
		prepare func(b *bubble) programs.Program
	}{
		{"mandate-consumer", 2, func(b *bubble) programs.Program {
			b.request(enrollOp, "r", 200)
			p := b.mandates()
			p.Rate = 2
			return p
		}},
		{"mail-consumer", 0.5, func(b *bubble) programs.Program {
			b.publish("mail.send.requested", message("m", 100))
			p := b.mails()
			p.Rate, p.BatchSize = 0.5, 2
			return p
		}},
		{"log-poller", 0.5, func(b *bubble) programs.Program {
			p := b.poller()
			p.Rate, p.Interval = 0.5, 100*time.Millisecond
			return p
		}},
	} {
		runInBubble(t, c.name, func(t *testing.T, b *bubble) {
			p, m := c.prepare(b), newMeter(b.upstream)
			b.run(p, time.Minute, nil)
			m.wantWithin(t, c.rate, 2*time.Second, 10*time.Second)
			if c.name != "log-poller" { // which pauses between sweeps
				m.wantUsed(t, c.rate, 0, 58*time.Second)
			}
		})
	}
}

// A request that waits for its call keeps its lease, goes back at once when the program is
// to end, and nobody takes its call for one that was begun.
func TestARequestThatWaitsForTheRateReturnsToItsQueueWhenTheProgramEnds(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		b.idle = 0
		const requests = 8
		b.request(enrollOp, "r", requests, "on_unknown", "report")
		m := newMeter(b.upstream)
		p := b.mandates()
		p.FleetRate = 0.02
		stop := b.running(p)
		time.Sleep(2*time.Minute + time.Second) // several AckWaits: calls at 0, 50 and 100 seconds
		info := b.queue(bus.EnrollQueue)
		errorIf(t, info.Delivered.Consumer != requests, "%d requests were delivered %d times", requests, info.Delivered.Consumer)
		stopped := time.Now()
		stop()
		if took := time.Since(stopped); took > 3*time.Second { // the last pulls end after two
			t.Errorf("the program took %v to end", took)
		}
		calls := m.at()
		if begun, done := b.count("mandate.enroll.started.*"), b.count("mandate.enroll.succeeded.*"); len(calls) != 3 || begun != 3 || done != 3 {
			t.Errorf("%d calls, %d announced, %d done, want three of each\n%s", len(calls), begun, done, b.logs)
		}
		b.run(b.mandates(), time.Minute, b.published("mandate.enroll.succeeded.*", requests))
		if calls := m.at(); len(calls) != requests || b.count("mandate.enroll.succeeded.*") != requests {
			t.Errorf("%d calls for %d requests\n%s", len(calls), requests, b.logs)
		}
	})
}

// While NATS does not answer nothing is called beyond what is leased, and nothing is lost.
func TestAReplicaThatCannotLeaseWaitsAndSaysSo(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		b.request(enrollOp, "r", 400)
		m := newMeter(b.upstream)
		wait := b.replicas(5, 90*time.Second, 90*time.Second)
		time.Sleep(20 * time.Second)
		must(t, b.js.DeleteStream(t.Context(), bus.RateLeases))
		time.Sleep(20 * time.Second)
		n := m.between(21*time.Second, 40*time.Second)
		errorIf(t, n > 0, "%d calls without a lease", n)
		if said := b.logs.String(); !strings.Contains(said, "errand provision --missing") || !strings.Contains(said, "FLEET_RATE") {
			t.Errorf("nobody says what to do:\n%s", said)
		}
		for _, s := range bus.Streams(bus.Limits{}) {
			if s.Name == bus.RateLeases {
				_, err := b.js.CreateStream(t.Context(), s)
				must(t, err)
			}
		}
		wait()
		m.wantWithin(t, 5, time.Second, 5*time.Second)
		m.wantUsed(t, 5, 2*time.Second, 20*time.Second)
		m.wantUsed(t, 5, 45*time.Second, 89*time.Second)
	})
}

// An installation from before there were rates needs no new stream unless it wants one.
func TestOnlyAFleetsRateNeedsItsStream(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		must(t, b.js.DeleteStream(t.Context(), bus.RateLeases))
		b.publish("mandate.enroll.requested", enrollment("r1"))
		p := b.mandates()
		p.Rate = 1
		b.run(p, time.Minute, b.published("mandate.enroll.succeeded.r1", 1))
		b.wantOne("mandate.enroll.succeeded.r1")
		p = b.mandates()
		p.FleetRate = 1
		err := p.Run(t.Context())
		want := "NATS has no stream RATE_LEASES: run `errand provision --missing` first"
		errorIf(t, err == nil || errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), want), "got %v, want %s", err, want)
	})
}

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
