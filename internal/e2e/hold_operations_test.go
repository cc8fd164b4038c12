package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"errand/internal/bus"
	"errand/internal/programs"
	"errand/internal/sandbox/devkit/inshort"
)

// Calls take 20 s of an AckWait of 30 s, and an hour of requests waits: they do not wait where their time runs out.
func TestSlowUpstreamMakesNothingExpire(t *testing.T) {
	for workers, n := range inshort.Choose(t, map[int]int{2: 120, 4: 300}, map[int]int{2: 30, 4: 60}) {
		runInBubble(t, fmt.Sprint("CONCURRENCY=", workers), func(t *testing.T, b *bubble) {
			b.latency(20 * time.Second)
			b.request(enrollOp, "r", n)
			p := b.mandates()
			p.Concurrency = workers
			began := time.Now()
			b.run(p, 3*time.Hour, b.published("mandate.enroll.succeeded.*", n))
			t.Logf("%d requests took %v", n, time.Since(began))
			if i := b.queue(bus.EnrollQueue); i.Delivered.Consumer != uint64(n) || i.NumRedelivered != 0 || i.NumAckPending != 0 {
				t.Errorf("%d deliveries of %d requests, %d redelivered, %d in flight", i.Delivered.Consumer, n, i.NumRedelivered, i.NumAckPending)
			}
			o := b.oracle()
			errorIf(t, o.Calls["enroll"] != int64(n), "%d calls", o.Calls["enroll"])
		})
	}
}

// Two replicas are held for the same thing: each asks once an interval, whichever
// of them gets the requests, and both go on.
func TestTwoReplicasAreHeldAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		const n = 20
		lasts := inshort.Choose(t, time.Hour, 15*time.Minute)
		first, other := b.mandates(), b.mandates()
		one, two := &outage{status: http.StatusUnauthorized}, &outage{}
		two.on(b, &other.Common, lasts)
		one.on(b, &first.Common, lasts)
		b.script = failing(reply{status: one.status}, one.over, nil)
		b.request(enrollOp, "r", n)
		var both sync.WaitGroup
		both.Go(func() { b.run(other, 2*time.Hour, b.published("mandate.enroll.succeeded.*", n)) })
		b.run(first, 2*time.Hour, b.published("mandate.enroll.succeeded.*", n))
		both.Wait()
		for i := range n {
			b.wantEventsBy(fmt.Sprint("mandate.enroll.succeeded.r", i), one.over.Add(25*time.Second))
		}
		probes := int(lasts / (10 * time.Second))
		if most := 2*probes + 2*8; len(one.calls(b)) > most || len(one.calls(b)) < probes {
			t.Errorf("%d calls of two programs in %v, want at most %d", len(one.calls(b)), lasts, most)
		}
		errorIf(t, len(one.held) != 1 || len(two.held) != 1 || len(one.ended) != 1 || len(two.ended) != 1,
			"held at %v and %v, ended at %v and %v, want once each", one.held, two.held, one.ended, two.ended)
	})
}

// With no writes at all, reads end a hold that they began.
func TestReadsAloneEndTheirHold(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		p := b.mails()
		o := outage{status: http.StatusUnauthorized}
		o.on(b, &p.Common, time.Hour)
		b.beside.Go(func() { // one waits all the time, the others come when it is nearly over
			b.publish("mail.account.requested", map[string]any{"request_id": "a"})
			time.Sleep(time.Hour - time.Second)
			b.request(accountOp, "late", 3)
		})
		b.run(p, 2*time.Hour, b.published("mail.account.reported.*", 4))
		for i := range 3 {
			b.wantEventsBy(fmt.Sprint("mail.account.reported.late", i), o.over.Add(12*time.Second))
		}
		b.wantEventsBy("mail.account.reported.a", o.over.Add(16*time.Minute))
		errorIf(t, len(o.held) != 1 || len(o.ended) != 1 || !strings.Contains(o.why[0], "email service (account) answers 401"),
			"held at %v until %v, why: %q, want once", o.held, o.ended, o.why)
	})
}

// A call of unknown fate that the request wants made again is not, once the program is asked to end; the next run does.
func TestNoCallIsRepeatedAfterAStop(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		b.idle = 0
		var calls atomic.Int64
		b.script = func(x exchange) reply { // nothing is done, and the answer does not say so
			if !x.write() {
				return reply{}
			}
			calls.Add(1)
			time.Sleep(5 * time.Second)
			return reply{status: http.StatusInternalServerError}
		}
		b.list()
		b.publish("mandate.enroll.requested", enrollment("r1", "on_unknown", "retry"))
		b.publish("mail.send.requested", message("m1", 1, "on_unknown", "resend"))
		for _, p := range []programs.Program{b.mandates(), b.mails()} {
			calls.Store(0)
			b.run(p, time.Minute, func() bool { return calls.Load() == 1 })
			n := calls.Load()
			errorIf(t, n != 1, "%T: %d calls, want the one that was on its way", p, n)
		}
		b.script = nil
		b.run(b.mandates(), time.Hour, b.published("mandate.enroll.succeeded.r1", 1))
		b.run(b.mails(), time.Hour, b.published("mail.send.accepted.m1", 1))
		b.wantOne("mandate.enroll.succeeded.r1")
		b.wantOne("mail.send.accepted.m1")
	})
}

// Each operation has its own hold: reads are answered at once for as long as submissions
// are not let through, with as few requests in flight as there may be.
func TestReadsAreAnsweredUnderAHoldOfWrites(t *testing.T) {
	full(t)
	const n, every, lasts = 10, 2 * time.Minute, 40 * time.Minute
	for _, s := range writes {
		for _, c := range []struct {
			name        string
			answer      reply
			concurrency int
		}{
			{"401", reply{status: http.StatusUnauthorized}, 2},
			{"503", reply{status: http.StatusServiceUnavailable}, 2},
			{"hanging", reply{hang: true}, 8},
		} {
			runInBubble(t, s.call+", "+c.name, func(t *testing.T, b *bubble) {
				over, due := time.Now().Add(lasts), map[string]time.Time{}
				b.script = failing(c.answer, over, exchange.write)
				b.request(s, "r", n, "on_unknown", "report")
				b.beside.Go(func() {
					for i := 0; time.Now().Before(over); i++ {
						time.Sleep(every)
						b.ask(s.read, fmt.Sprint("q", i), due, time.Now().Add(time.Second))
					}
				})
				b.run(b.program(s, c.concurrency), lasts+time.Hour, func() bool { return time.Now().After(over) && b.haveOutcomes(s.events(), n)() })
				b.beside.Wait()
				wantBy(t, b.outcomes(s.read.events()), due, s.read.succeeded)
			})
		}
	}
}

// Unauthorized reads are held by themselves, and probed: submissions, which work,
// go on from the first one, and when the reads are authorized they come back.
func TestWritesGoOnUnderAHoldOfReads(t *testing.T) {
	full(t)
	const submitted, reads, lasts = 300, 5, 30 * time.Minute
	for _, s := range writes {
		for _, status := range []int{403, 404, 503} {
			runInBubble(t, fmt.Sprint(s.read.call, ", ", status), func(t *testing.T, b *bubble) {
				over := time.Now().Add(lasts)
				due, back := map[string]time.Time{}, map[string]time.Time{}
				b.script = failing(reply{status: status}, over, func(x exchange) bool { return !x.write() })
				for i := range reads {
					b.ask(s.read, fmt.Sprint("q", i), back, over.Add(2*retryMax+5*time.Second))
				}
				b.beside.Go(func() {
					for i := range submitted {
						time.Sleep(time.Second)
						b.ask(s, fmt.Sprint("r", i), due, time.Now().Add(time.Second))
					}
				})
				b.run(b.program(s, 8), lasts+30*time.Minute, func() bool {
					return time.Now().After(over) && b.haveOutcomes(s.events(), submitted)() && b.haveOutcomes(s.read.events(), reads)()
				})
				b.beside.Wait()
				wantBy(t, b.outcomes(s.events()), due, s.succeeded)
				wantBy(t, b.outcomes(s.read.events()), back, s.read.succeeded)
				// A probe is a read, and the request that is read for after it.
				calls := b.exchanges(func(x exchange) bool { return !x.write() && x.at.Before(over) })
				most := 2*int(lasts/retryMax) + 5*reads
				errorIf(t, len(calls) > most, "%d reads in %v, want at most %d", len(calls), lasts, most)
			})
		}
	}
}

// The read of a probe is one of the calls that CONCURRENCY bounds.
func TestTheReadOfAProbeTakesASlot(t *testing.T) {
	const concurrency, timeout = 2, 30 * time.Second
	for _, s := range writes {
		runInBubble(t, s.call, func(t *testing.T, b *bubble) {
			began := time.Now()
			b.script = func(x exchange) reply {
				if x.write() {
					return reply{status: http.StatusUnauthorized}
				}
				return reply{hang: x.at.Sub(began) < 80*time.Second}
			}
			b.request(s, "r", concurrency+1)
			p := b.program(s, concurrency)
			b.beside.Go(func() {
				time.Sleep(5 * time.Second) // it is held by now, and nobody reads yet
				b.request(listOp, "l", concurrency)
				b.request(accountOp, "a", concurrency)
			})
			b.run(p, 2*time.Minute, nil)
			reads := b.exchanges(func(x exchange) bool { return !x.write() })
			for i := concurrency; i < len(reads) && reads[i].at.Sub(began) < 80*time.Second; i++ { // each lasts as long as it may
				if since := reads[i].at.Sub(reads[i-concurrency].at); since < timeout {
					t.Errorf("%d reads under way at %v", concurrency+1, reads[i].at)
				}
			}
			errorIf(t, len(reads) <= concurrency, "%d reads", len(reads))
		})
	}
}
