package e2e

import (
	"fmt"
	"net/http"
	"testing"
	"time"
)

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
