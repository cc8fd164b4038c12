package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"errand/internal/programs"
)

// gauge is a transport that knows how many calls are under way.
type gauge struct {
	next      http.RoundTripper
	now, most atomic.Int64
}

func (g *gauge) RoundTrip(r *http.Request) (*http.Response, error) {
	defer g.now.Add(-1)
	for n := g.now.Add(1); ; {
		most := g.most.Load()
		if n <= most || g.most.CompareAndSwap(most, n) {
			return g.next.RoundTrip(r)
		}
	}
}

// inFlight is how many requests of a program are delivered and not settled. It lets everything come
// to rest first: an acknowledgement that is on its way to the server counts as settled.
func (b *bubble) inFlight(subjects ...string) (n int) {
	b.t.Helper()
	synctest.Wait()
	for _, subject := range subjects {
		n += b.queue(queueOf(subject)).NumAckPending
	}
	return n
}

// CONCURRENCY is how many calls are under way at once, of all operations and batches together; a quarter more requests
// may be in flight. All of it is used.
func TestConcurrencyCountsCalls(t *testing.T) {
	const concurrency = 8
	mail := func(size, parallel int) func(b *bubble, g *gauge) programs.Program {
		return func(b *bubble, g *gauge) programs.Program {
			p := b.mails()
			p.BatchSize, p.BatchParallel = size, parallel
			g.next, p.Transport, p.Concurrency = p.Transport, g, concurrency
			return p
		}
	}
	for _, c := range []struct {
		name     string
		program  func(b *bubble, g *gauge) programs.Program
		requests map[string]func(id string) any
		n        int // requests of each kind
	}{
		{"mandates", func(b *bubble, g *gauge) programs.Program {
			p := b.mandates()
			g.next, p.Transport, p.Concurrency = p.Transport, g, concurrency
			return p
		}, map[string]func(id string) any{
			"mandate.enroll.requested":       func(id string) any { return enrollment(id) },
			"mandate.transactions.requested": func(id string) any { return map[string]any{"request_id": id, "order_number": "none"} },
		}, 40},
		{"mail in many batches", mail(2, 4), map[string]func(id string) any{
			"mail.send.requested":    func(id string) any { return message(id, 12) },
			"mail.account.requested": func(id string) any { return map[string]any{"request_id": id} },
		}, 20},
		{"one message", mail(1, 100), map[string]func(id string) any{"mail.send.requested": func(id string) any { return message(id, 80) }}, 1},
	} {
		runInBubble(t, c.name, func(t *testing.T, b *bubble) {
			b.latency(5 * time.Second)
			var subjects []string
			for subject, request := range c.requests {
				subjects = append(subjects, subject)
				for i := range c.n {
					b.publish(subject, request(fmt.Sprintf("%s-%d", strings.Split(subject, ".")[1], i)))
				}
			}
			var g gauge
			inFlight := 0
			b.run(c.program(b, &g), 30*time.Minute, func() bool {
				inFlight = max(inFlight, b.inFlight(subjects...))
				return b.queued() == 0
			})
			fatalIf(t, b.queued() != 0, "not all requests ended\n%s", b.logs)
			equal(t, "calls at once", g.most.Load(), concurrency)
			errorIf(t, inFlight > concurrency+concurrency/4, "%d requests in flight, want at most %d", inFlight, concurrency+concurrency/4)
		})
	}
}

// An idle queue keeps a place free, but never one that calls need, however few there are.
func TestAnIdleQueueTakesNoCallFromTheBusyOne(t *testing.T) {
	const requests, latency = 12, 5 * time.Second
	for _, concurrency := range []int{2, 3, 4} {
		inBubble(t, func(t *testing.T, b *bubble) {
			b.idle = 0
			b.latency(latency)
			b.request(enrollOp, "e-", requests)
			p := b.mandates()
			p.Concurrency = concurrency
			began := time.Now()
			b.run(p, 5*time.Minute, func() bool { return b.queued() == 0 })
			if took, want := time.Since(began), requests*latency/time.Duration(concurrency); took > want+8*time.Second {
				t.Errorf("%d at once: %d calls of %v took %v, want %v and a little more", concurrency, requests, latency, took, want)
			}
		})
	}
}
