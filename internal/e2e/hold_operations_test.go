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
	for _, s := range []service{mandateService(), mailService()} {
		for _, c := range []struct {
			name        string
			answer      reply
			concurrency int
		}{
			{"401", reply{status: http.StatusUnauthorized}, 2},
			{"503", reply{status: http.StatusServiceUnavailable}, 2},
			{"hanging", reply{hang: true}, 8},
		} {
			runInBubble(t, s.write+", "+c.name, func(t *testing.T, b *bubble) {
				over, due := time.Now().Add(lasts), map[string]time.Time{}
				u := b.upstream(func(x exchange) reply {
					if x.write() && x.at.Before(over) {
						return c.answer
					}
					return reply{}
				})
				for i := range n {
					b.publish(s.requested, s.request(fmt.Sprint("r", i), "on_unknown", "report"))
				}
				b.beside.Go(func() {
					for i := 0; time.Now().Before(over); i++ {
						time.Sleep(every)
						id := fmt.Sprint("q", i)
						due[id] = time.Now().Add(time.Second)
						b.publish(s.asked, map[string]any{"request_id": id})
					}
				})
				b.run(s.program(b, c.concurrency, u), lasts+time.Hour, func() bool { return time.Now().After(over) && b.haveOutcomes(s.events, n)() })
				b.beside.Wait()
				wantBy(t, b.outcomes(s.answers), due, s.answered)
			})
		}
	}
}

// Unauthorized reads are held by themselves, and probed: submissions, which work,
// go on from the first one, and when the reads are authorized they come back.
func TestWritesGoOnUnderAHoldOfReads(t *testing.T) {
	full(t)
	const writes, reads, lasts = 300, 5, 30 * time.Minute
	for _, s := range []service{mandateService(), mailService()} {
		for _, status := range []int{403, 404, 503} {
			runInBubble(t, fmt.Sprint(s.read, ", ", status), func(t *testing.T, b *bubble) {
				over := time.Now().Add(lasts)
				due, back := map[string]time.Time{}, map[string]time.Time{}
				u := b.upstream(func(x exchange) reply {
					if !x.write() && x.at.Before(over) {
						return reply{status: status}
					}
					return reply{}
				})
				for i := range reads {
					id := fmt.Sprint("q", i)
					back[id] = over.Add(2*retryMax + 5*time.Second)
					b.publish(s.asked, map[string]any{"request_id": id})
				}
				b.beside.Go(func() {
					for i := range writes {
						time.Sleep(time.Second)
						id := fmt.Sprint("r", i)
						due[id] = time.Now().Add(time.Second)
						b.publish(s.requested, s.request(id))
					}
				})
				b.run(s.program(b, 8, u), lasts+30*time.Minute, func() bool {
					return time.Now().After(over) && b.haveOutcomes(s.events, writes)() && b.haveOutcomes(s.answers, reads)()
				})
				b.beside.Wait()
				wantBy(t, b.outcomes(s.events), due, s.succeeded)
				wantBy(t, b.outcomes(s.answers), back, s.answered)
				// A probe is a read, and the request that is read for after it.
				calls := u.calls(func(x exchange) bool { return !x.write() && x.at.Before(over) })
				if most := 2*int(lasts/retryMax) + 5*reads; len(calls) > most {
					t.Errorf("%d reads in %v, want at most %d", len(calls), lasts, most)
				}
			})
		}
	}
}
