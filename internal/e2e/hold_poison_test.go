package e2e

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"errand/internal/sandbox/devkit/inshort"
	"errand/pkg/messages"
)

// Twenty requests that the service refuses with 403 for what they say, spread over 4,800 good ones in four
// minutes: the good ones are not kept waiting, and the bad ones end as refused once it is clear that others may.
func TestRequestsRefusedForTheirOwnFaultHoldNobody(t *testing.T) {
	full(t)
	const good, bad, lasts = 4800, 20, 4 * time.Minute
	for _, c := range []struct {
		name string
		*operation
		more        []string
		fewest, max int // calls for each bad one
	}{
		{"an unknown portal_key", enrollOp, []string{"portal_key", "theirs"}, 1, 1},
		{"a sender that is not verified", sendOp, []string{"from", "unverified@example.test"}, 5, 8},
	} {
		runInBubble(t, c.name, func(t *testing.T, b *bubble) {
			b.script = refuse(http.StatusForbidden)
			due := map[string]time.Time{}
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			b.beside.Go(func() { // a trickle remains, so that others succeed as long as a bad one waits
				for n, pace := 0, lasts/good; ; n++ {
					if n%(good/bad) == 0 && n < good {
						b.publish(c.Requested(), c.request(fmt.Sprint("bad", n), c.more...))
					}
					if n == good {
						pace = 5 * time.Second
					}
					b.ask(c.operation, fmt.Sprint("good", n), due, time.Now().Add(3*retryMax))
					select {
					case <-time.After(pace):
					case <-ctx.Done():
						return
					}
				}
			})
			failed := c.Subject("failed", "*")
			b.run(b.program(c.operation, 8), 2*time.Hour, func() bool { return b.haveOutcomes(c.events(), good)() && b.haveOutcomes(failed, bad)() })
			stop()
			b.beside.Wait()
			b.run(b.program(c.operation, 8), time.Minute, b.haveOutcomes(c.events(), len(due)+bad))

			ends := b.outcomes(c.events())
			wantBy(t, ends, due, c.succeeded)
			missing := 0
			for n := 0; n < good; n += good / bad {
				if id := fmt.Sprint("bad", n); ends[id].Subject == "" {
					missing++
				} else {
					b.wantRefused(ends[id], c.fewest, c.max)
				}
			}
			errorIf(t, missing > 0, "%d of %d bad requests have no outcome", missing, bad)
		})
	}
}

// wantRefused wants a request to have ended as refused by a 403, after so many calls, with deferrals as held.
func (b *bubble) wantRefused(e event, fewest, most int) {
	b.t.Helper()
	if e.state() != messages.Failed || e.reason() != "refused" || number(e.Body["http_status"]) != http.StatusForbidden {
		b.t.Errorf("%s: want failed/refused by 403: %s", e.Subject, e.Raw)
		return
	}
	calls := len(b.writes(e.id()))
	errorIf(b.t, calls < fewest || calls > most, "%s: %d calls, want %d to %d", e.Subject, calls, fewest, most)
	deferred := b.events(string(e.operation()) + ".deferred." + e.id())
	errorIf(b.t, len(deferred) != calls-1, "%s: deferred %d times, with %d calls", e.Subject, len(deferred), calls)
	for _, d := range deferred {
		errorIf(b.t, d.reason() != "held" || number(d.Body["http_status"]) != http.StatusForbidden, "%s: deferred as %s", e.Subject, d.Raw)
	}
}

// The same at the head of the queue, where no success comes between them: each may be a
// probe once, so that the first of the others is found before long.
func TestRefusedRequestsAtTheHeadOfTheQueueDoNotKeepIt(t *testing.T) {
	const good = 200
	for _, s := range writes {
		for _, bad := range inshort.Choose(t, []int{2, 20, 150}, []int{2, 20}) {
			runInBubble(t, fmt.Sprint(s.call, ", ", bad), func(t *testing.T, b *bubble) {
				b.script = refuse(http.StatusForbidden)
				due := map[string]time.Time{}
				within := time.Duration(bad+2) * retryMax
				b.request(s, "bad", bad)
				for n := range good {
					b.ask(s, fmt.Sprint("good", n), due, time.Now().Add(within))
				}
				b.run(b.program(s, 8), within+time.Minute, b.haveOutcomes(s.good(), good))
				wantBy(t, b.outcomes(s.events()), due, s.succeeded)
			})
		}
	}
}

// An upstream that takes every call and answers nothing, or answers all with 504: after three of them in a row nothing
// more is taken, and probes grow rare, so that the queue is not spent on calls whose fate nobody knows.
func TestAnUpstreamThatHangsDoesNotUseUpTheQueue(t *testing.T) {
	full(t)
	const concurrency, inFlight = 8, 2 * 8 // the first ones, and those taken before the third result was known
	for _, c := range []struct {
		name   string
		lasts  time.Duration
		n      int
		probes int           // with a submission
		back   time.Duration // when it is over
		answer reply
		reads  bool // they are hit too
	}{
		// The last read that hangs, one interval, and one more for what was deferred.
		{"everything hangs", time.Hour, 100, 0, 30*time.Second + 2*retryMax, reply{hang: true}, true},
		{"submissions hang", 15 * time.Minute, 400, 7, 15 * time.Minute, reply{hang: true}, false},
		{"504 to everything", time.Hour, 100, 0, 30*time.Second + 2*retryMax, reply{status: http.StatusGatewayTimeout}, true},
		{"504 to submissions", 15 * time.Minute, 400, 7, 15 * time.Minute, reply{status: http.StatusGatewayTimeout}, false},
	} {
		for _, s := range writes {
			runInBubble(t, s.call+", "+c.name, func(t *testing.T, b *bubble) {
				over := time.Now().Add(c.lasts)
				b.script = failing(c.answer, over, func(x exchange) bool { return x.write() || c.reads })
				b.request(s, "r", c.n, "on_unknown", "report")
				b.run(b.program(s, concurrency), c.lasts+time.Hour, b.haveOutcomes(s.events(), c.n))

				spent := b.exchanges(func(x exchange) bool { return x.write() && x.at.Before(over) })
				most := inFlight + c.probes
				errorIf(t, len(spent) > most, "%d submissions of %d requests while the service did not answer, want at most %d", len(spent), c.n, most)
				ends := b.outcomes(s.events())
				for _, x := range spent {
					if e := ends[x.id]; e.Subject == "" || e.state() != messages.Uncertain || len(b.writes(x.id)) != 1 {
						t.Errorf("%s was called %d times and ended as %s", x.id, len(b.writes(x.id)), e.Subject)
					}
				}
				b.wantBack(ends, s, c.n, spent, over.Add(c.back+5*time.Second))
			})
		}
	}
}

// wantBack wants every request r0, r1, … without a submission in spent to have succeeded by then.
func (b *bubble) wantBack(ends map[string]event, s *operation, n int, spent []exchange, then time.Time) {
	called := map[string]bool{}
	for _, x := range spent {
		called[x.id] = true
	}
	due := map[string]time.Time{}
	for i := range n {
		if id := fmt.Sprint("r", i); !called[id] {
			due[id] = then
		}
	}
	wantBy(b.t, ends, due, s.succeeded)
}
