package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// However many bad requests are at the head of the queue, each is a probe once, so that
// those behind them are found.
func TestMoreRefusedRequestsThanAProbePassesOverDoNotKeepTheQueue(t *testing.T) {
	full(t)
	const bad, good = 150, 20
	s := mailService()
	inBubble(t, func(t *testing.T, b *bubble) {
		u, due := b.upstream(refuse(http.StatusForbidden)), map[string]time.Time{}
		within := 2 * bad * retryMax
		for n := range bad {
			b.publish(s.requested, s.request(fmt.Sprint("bad", n)))
		}
		for n := range good {
			id := fmt.Sprint("good", n)
			due[id] = time.Now().Add(within)
			b.publish(s.requested, s.request(id))
		}
		b.run(s.program(b, 8, u), within+time.Minute, b.haveOutcomes(strings.Replace(s.events, "*", string(s.succeeded), 1), good))
		wantBy(t, b.outcomes(s.events), due, s.succeeded)
	})
}
