package e2e

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"errand/pkg/messages"
)

// An upstream that takes every call and answers none, or answers all with 504: after
// three of them in a row nothing more is taken, so that the rest of the queue is not
// spent on calls whose fate nobody knows.
func TestAnUpstreamThatHangsDoesNotUseUpTheQueue(t *testing.T) {
	full(t)
	const concurrency, inFlight = 8, 2 * 8 // those of the beginning, and those taken before the third was known
	for _, c := range []struct {
		name   string
		lasts  time.Duration
		n      int
		probes int // with a submission
		answer reply
		reads  bool // they are hit too
	}{
		{"everything hangs", time.Hour, 100, 0, reply{hang: true}, true},
		{"submissions hang", 15 * time.Minute, 400, 90, reply{hang: true}, false},
		{"504 to everything", time.Hour, 100, 0, reply{status: http.StatusGatewayTimeout}, true},
		{"504 to submissions", 15 * time.Minute, 400, 90, reply{status: http.StatusGatewayTimeout}, false},
	} {
		for _, s := range writes {
			runInBubble(t, s.call+", "+c.name, func(t *testing.T, b *bubble) {
				over := time.Now().Add(c.lasts)
				b.script = func(x exchange) reply {
					if x.at.Before(over) && (x.write() || c.reads) {
						return c.answer
					}
					return reply{}
				}
				for n := range c.n {
					b.publish(s.Requested(), s.request(fmt.Sprint("r", n), "on_unknown", "report"))
				}
				b.run(b.program(s, concurrency), c.lasts+time.Hour, b.haveOutcomes(s.events(), c.n))

				spent := b.exchanges(func(x exchange) bool { return x.write() && x.at.Before(over) })
				if most := inFlight + c.probes; len(spent) > most {
					t.Errorf("%d submissions of %d requests while the service did not answer, want at most %d", len(spent), c.n, most)
				}
				ends := b.outcomes(s.events())
				for _, x := range spent {
					if e := ends[x.id]; e.Subject == "" || e.state() != messages.Uncertain || len(b.writes(x.id)) != 1 {
						t.Errorf("%s was called %d times and ended as %s", x.id, len(b.writes(x.id)), e.Subject)
					}
				}
				// The last read that hangs, one interval, and one more for what was deferred.
				b.wantBack(ends, s, c.n, spent, over.Add(30*time.Second+2*retryMax+5*time.Second))
			})
		}
	}
}

// wantBack wants every request r0, r1, … without a submission in spent to have succeeded
// by then.
func (b *bubble) wantBack(ends map[string]event, s *operation, n int, spent []exchange, then time.Time) {
	b.t.Helper()
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
