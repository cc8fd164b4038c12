package e2e

import (
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"
)

// rateLimit answers 429 once it has let so many calls through in a minute.
func rateLimit(calls int, retryAfter bool) func(exchange) reply {
	var mu sync.Mutex
	var opened time.Time
	seen := 0
	return func(x exchange) reply {
		mu.Lock()
		defer mu.Unlock()
		if x.at.Sub(opened) >= time.Minute {
			opened, seen = x.at, 0
		}
		if seen++; seen <= calls {
			return reply{}
		}
		answer := reply{status: http.StatusTooManyRequests, body: `{"code":429,"message":"Too Many Attempts."}`}
		if retryAfter {
			left := opened.Add(time.Minute).Sub(x.at)
			answer.header = map[string]string{"Retry-After": strconv.Itoa(int(left/time.Second) + 1)}
		}
		return answer
	}
}

// without answers so to every call between two times, counted from the first call.
func without(from, to time.Duration, answer reply) func(exchange) reply {
	var once sync.Once
	var began time.Time
	return func(x exchange) reply {
		once.Do(func() { began = x.at })
		if since := x.at.Sub(began); since >= from && since < to {
			return answer
		}
		return reply{}
	}
}

// A listing has more pages than the service answers in a minute, or the service is away for some minutes in the middle:
// the listing goes on with the page after the last one that was published.
func TestAListingGoesOnWhereItWasPutOff(t *testing.T) {
	const pages = 30
	for _, c := range []struct {
		name   string
		script func(exchange) reply
		probes int // that are answered, with a page too
	}{
		{"4 calls a minute, with Retry-After", rateLimit(4, true), 0},
		{"7 calls a minute", rateLimit(7, false), 0},
		{"503 in the middle", without(5*time.Second, 5*time.Minute, reply{status: http.StatusServiceUnavailable}), 1},
		{"401 in the middle", without(5*time.Second, 5*time.Minute, reply{status: http.StatusUnauthorized}), 1},
		{"hanging in the middle", without(5*time.Second, 5*time.Minute, reply{hang: true}), 1},
		{"502 in the middle", without(5*time.Second, 5*time.Minute, reply{status: http.StatusBadGateway}), 1},
	} {
		runInBubble(t, c.name, func(t *testing.T, b *bubble) {
			b.enrollDirectly(pages * perPage)
			b.latency(time.Second)
			b.script = c.script
			b.publish("mandate.transactions.requested", map[string]any{"request_id": "list"})
			b.run(b.program(enrollOp, 8), 2*time.Hour, b.published("mandate.transactions.listed.list", 1))
			history := b.events("mandate.transactions.*.list")
			wantListed(t, history, pages, pages*perPage)
			b.wantPagesOnce(pages, c.probes)
			b.queueEmpty("MANDATE_REQUESTS")
		})
	}
}

// The same listing asked for twice, at once or while it is under way: both are done when
// it is, and it costs about as many calls as one.
func TestAListingAskedForTwiceIsReadOnce(t *testing.T) {
	const pages = 30
	for _, c := range []struct {
		name   string
		apart  time.Duration
		script func(exchange) reply
	}{
		{"at once", 0, nil},
		{"while it is under way", 5 * time.Second, nil},
		{"with a rate limit", 0, rateLimit(10, true)},
		{"while it is deferred", 20 * time.Second, rateLimit(10, true)},
	} {
		runInBubble(t, c.name, func(t *testing.T, b *bubble) {
			b.enrollDirectly(pages * perPage)
			b.latency(time.Second)
			b.script = c.script
			began := time.Now()
			b.beside.Go(func() {
				b.publish("mandate.transactions.requested", map[string]any{"request_id": "list"})
				time.Sleep(c.apart)
				b.publish("mandate.transactions.requested", map[string]any{"request_id": "list"})
			})
			p := b.program(enrollOp, 8)
			b.run(p, 2*time.Hour, func() bool {
				return b.published("mandate.transactions.listed.list", 1)() && b.stored("MANDATE_REQUESTS") == 0
			})
			b.beside.Wait()
			took := time.Since(began)
			b.publish("mandate.transactions.requested", map[string]any{"request_id": "list"})
			b.run(p, time.Minute, func() bool { return b.stored("MANDATE_REQUESTS") == 0 })

			wantListed(t, b.events("mandate.transactions.*.list"), pages, pages*perPage)
			b.wantPagesOnce(pages, pages/2)
			errorIf(t, took > 10*time.Minute, "it took %v", took)
			b.queueEmpty("MANDATE_REQUESTS")
		})
	}
}

// A listing is known by its contents from its first page on: another request under its
// id, a valid or an invalid one, ends by itself and leaves the listing alone.
func TestAListingUnderWayIsNotEndedByAnotherRequest(t *testing.T) {
	const pages = 20
	for _, c := range []struct {
		name   string
		other  string
		reason []string
	}{
		{"an unknown field", `{"request_id":"list","nobody":1}`, []string{"invalid_request", "conflict"}},
		{"a field of another kind", `{"request_id":"list","max_pages":"many"}`, []string{"invalid_request", "conflict"}},
		{"other contents", `{"request_id":"list","status":"3"}`, []string{"conflict"}},
		{"fewer pages", `{"request_id":"list","max_pages":1}`, []string{"conflict"}},
	} {
		for state, script := range map[string]func(exchange) reply{
			"under way": nil,
			"deferred": without(5*time.Second, 2*time.Minute, reply{status: http.StatusTooManyRequests,
				header: map[string]string{"Retry-After": "90"}}),
		} {
			runInBubble(t, c.name+", "+state, func(t *testing.T, b *bubble) {
				b.enrollDirectly(pages * perPage)
				b.latency(time.Second)
				b.script = script
				b.beside.Go(func() {
					b.publish("mandate.transactions.requested", map[string]any{"request_id": "list"})
					time.Sleep(12 * time.Second)
					b.publish("mandate.transactions.requested", []byte(c.other))
				})
				b.run(b.program(enrollOp, 8), time.Hour, func() bool {
					return b.haveOutcomes("mandate.transactions.*.*", 2)()
				})
				b.beside.Wait()
				wantListed(t, b.events("mandate.transactions.*.list"), pages, pages*perPage)
				e := b.wantOne("mandate.transactions.*.MANDATE_REQUESTS-2")
				errorIf(t, string(e.state()) != "failed" || e.Body["conflicts_with"] != "list" || e.reason() != c.reason[0] &&
					e.reason() != c.reason[len(c.reason)-1], "the other one: %s %s, want failed for %v with list", e.Subject, e.Raw, c.reason)
				d := b.wantOne("dead.mandate.transactions.requested")
				errorIf(t, d.Raw != c.other, "dead letter: %s", d.Raw)
				b.queueEmpty("MANDATE_REQUESTS")
			})
		}
	}
}
