package e2e

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"errand/pkg/messages"
)

// A hold, from its beginning to its end. It begins when the fault is surely not one request's; while it lasts there is
// one probe an interval, first a read that harms nobody, and only after a good answer to that one request, each of them
// once while others wait; a success ends it, and all that it put off comes back.
func TestAHoldProbesWithAReadAndThenWithEachRequestOnce(t *testing.T) {
	full(t)
	const n, concurrency, lasts = 30, 8, 10 * time.Minute
	for _, s := range writes {
		for _, c := range []struct {
			name          string
			submit, read  int // status of each, 0 means as it should be
			begins, first int // requests that begin it; submissions until then at most
		}{
			{"401 to submissions", 401, 0, 2, 2 * concurrency},
			{"401 to both", 401, 401, 2, 2 * concurrency},
			{"403 to submissions, 503 to reads", 403, 503, 2, 2 * concurrency},
			{"503 to submissions", 503, 0, 3, 2 * concurrency * 5},
			{"503 to both", 503, 503, 3, 2 * concurrency * 5},
		} {
			runInBubble(t, s.call+", "+c.name, func(t *testing.T, b *bubble) {
				over, due := time.Now().Add(lasts), map[string]time.Time{}
				b.script = func(x exchange) reply {
					switch {
					case !x.at.Before(over):
						return reply{}
					case x.write():
						return reply{status: c.submit}
					}
					return reply{status: c.read}
				}
				for i := range n {
					b.ask(s, fmt.Sprint("r", i), due, over.Add(2*retryMax+5*time.Second))
				}
				b.run(b.program(s, concurrency), lasts+time.Hour, b.haveOutcomes(s.events(), n))

				began := b.holdBegan(s, c.begins)
				first := b.exchanges(func(x exchange) bool { return x.write() && !x.at.After(began) })
				errorIf(t, len(first) > c.first, "%d submissions before the hold, want at most %d", len(first), c.first)
				b.wantProbes(began, over, n)
				wantBy(t, b.outcomes(s.events()), due, s.succeeded)
			})
		}
	}
}

// holdBegan is when so many different requests had been deferred.
func (b *bubble) holdBegan(s *operation, requests int) time.Time {
	seen := map[string]bool{}
	for _, e := range b.events(s.Subject("deferred", "*")) {
		if seen[e.id()] = true; len(seen) == requests {
			return e.at(b.t)
		}
	}
	b.t.Fatalf("%d requests were deferred, a hold takes %d\n%s", len(seen), requests, b.logs)
	return time.Time{}
}

// wantProbes wants what was called in a hold to be probes, of n requests that wait.
func (b *bubble) wantProbes(began, over time.Time, n int) {
	const settling = 5 * time.Second // what was in flight when it began may end its tries
	before, probed := map[string]bool{}, map[string]bool{}
	var read exchange // the last one
	probes, faults := 0, 0
	fault := func(format string, args ...any) {
		if faults++; faults <= 5 {
			b.t.Errorf(format, args...)
		}
	}
	for _, x := range b.exchanges(func(x exchange) bool { return x.at.Before(over) }) {
		since := x.at.Sub(began).Round(time.Millisecond)
		switch {
		case since <= 0:
			before[x.id] = true
		case x.write() && since < settling && before[x.id]:
		case !x.write():
			if gap := x.at.Sub(read.at); gap < retryMax-100*time.Millisecond {
				fault("two reads %v apart, %v into the hold", gap, since)
			}
			read = x
			probes++
		case read.status != http.StatusOK || x.at.Sub(read.at) > time.Second:
			fault("%s was called %v into the hold, without a good answer to a read before (%s: %d, %v before)", x.id, since, read.operation,
				read.status, x.at.Sub(read.at))
		default:
			if probed[x.id] && len(probed) < n {
				fault("%s was a probe again %v into the hold, while %d had not been one", x.id, since, n-len(probed))
			}
			probed[x.id] = true
			read.status = 0 // one request for each
		}
	}
	least := int(over.Sub(began)/retryMax) / 2
	errorIf(b.t, probes < least, "%d probes in %v, want at least %d", probes, over.Sub(began), least)
	errorIf(b.t, faults > 0, "%d calls against the rules of a hold", faults)
}

// Requests that the service does not take for a fault of their own, while it takes all
// others: they are deferred by themselves, and the others do not notice.
func TestRequestsThatAreNotTakenAreDeferredByThemselves(t *testing.T) {
	for _, s := range writes {
		for _, c := range []struct {
			status, bad, refusals int // refusals of each before it is taken
			reason                string
		}{
			{401, 1, 3, "held"}, {402, 1, 3, "held"}, {403, 1, 3, "held"}, {404, 1, 3, "held"}, {405, 1, 3, "held"},
			{503, 3, 10, "busy"}, {429, 3, 10, "busy"},
		} {
			runInBubble(t, fmt.Sprint(s.call, ", ", c.status), func(t *testing.T, b *bubble) {
				b.idle = 0
				var mu sync.Mutex
				refused, due := map[string]int{}, map[string]time.Time{}
				b.script = func(x exchange) reply {
					mu.Lock()
					defer mu.Unlock()
					if !strings.HasPrefix(x.id, "bad") || refused[x.id] == c.refusals {
						return reply{}
					}
					refused[x.id]++
					return reply{status: c.status}
				}
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				b.beside.Go(func() {
					for n := 0; ; n++ {
						if n >= 5 && n%5 == 0 && n/5 <= c.bad {
							b.publish(s.Requested(), s.request(fmt.Sprint("bad", n/5)))
						}
						b.ask(s, fmt.Sprint("good", n), due, time.Now().Add(time.Second))
						select {
						case <-time.After(time.Second):
						case <-ctx.Done():
							return
						}
					}
				})
				bad := func(state string) string {
					return strings.Replace(strings.Replace(s.events(), "*", state, 1), ".*", ".bad", 1)
				}
				taken := func() bool {
					for n := range c.bad {
						if !b.haveOutcomes(bad(string(s.succeeded))+fmt.Sprint(n+1), 1)() {
							return false
						}
					}
					return true
				}
				b.run(b.program(s, 8), 20*time.Minute, taken)
				stop()
				b.beside.Wait()
				b.run(b.program(s, 8), time.Minute, b.haveOutcomes(s.events(), len(due)+c.bad))

				ends := b.outcomes(s.events())
				wantBy(t, ends, due, s.succeeded)
				for n := range c.bad {
					id := fmt.Sprint("bad", n+1)
					if e := ends[id]; e.Subject == "" || e.state() != s.succeeded || len(b.writes(id)) != c.refusals+1 {
						t.Errorf("%s: %d calls, want %d, and %s: %s %s", id, len(b.writes(id)), c.refusals+1, s.succeeded, e.Subject, e.Raw)
					}
					deferred := b.events(bad("deferred") + fmt.Sprint(n+1))
					errorIf(t, len(deferred) == 0 || slices.ContainsFunc(deferred, func(e event) bool { return e.reason() != c.reason }),
						"%s was deferred as %v, want %s", id, deferred, c.reason)
				}
			})
		}
	}
}

// Nothing fails for a hold but what must not wait any longer: at its own time, and without a call after that.
func TestAHoldFailsRequestsAtTheirGiveUpTimeOnly(t *testing.T) {
	const n, lasts, patience = 6, 20 * time.Minute, 5 * time.Minute
	for _, s := range writes {
		runInBubble(t, s.call, func(t *testing.T, b *bubble) {
			began := time.Now()
			over, giveUp := began.Add(lasts), began.Add(patience)
			b.script = failing(reply{status: http.StatusUnauthorized}, over, exchange.write)
			for i := range n {
				b.publish(s.Requested(), s.request(fmt.Sprint("soon", i), "give_up_at", giveUp.UTC().Format(time.RFC3339)))
				b.publish(s.Requested(), s.request(fmt.Sprint("late", i)))
			}
			b.run(b.program(s, 4), 2*lasts, b.haveOutcomes(s.events(), 2*n))
			ends, due, soon := b.outcomes(s.events()), map[string]time.Time{}, map[string]time.Time{}
			for i := range n {
				due[fmt.Sprint("late", i)] = over.Add(2*retryMax + 5*time.Second)
				id := fmt.Sprint("soon", i)
				soon[id] = over.Add(time.Minute)
				if len(b.writes(id)) > 0 {
					soon[id] = giveUp.Add(2 * n * retryMax) // no wait goes beyond that time; each may cost a probe
				}
				e := ends[id]
				errorIf(t, e.Subject == "" || e.reason() != "unavailable" || e.at(t).Before(giveUp),
					"%s: want unavailable, not before %v: %s %s", id, giveUp, e.Subject, e.Raw)
				for _, x := range b.writes(id) {
					errorIf(t, x.at.After(giveUp), "%s was called at %v, %v after its time", id, x.at, x.at.Sub(giveUp))
				}
			}
			wantBy(t, ends, soon, messages.Failed)
			wantBy(t, ends, due, s.succeeded)
		})
	}
}
