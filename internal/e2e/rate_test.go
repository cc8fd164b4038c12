package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"errand/internal/bus"
	"errand/internal/programs"
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
