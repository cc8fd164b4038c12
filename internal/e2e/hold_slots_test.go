package e2e

import (
	"fmt"
	"net/http"
	"testing"
	"time"
)

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
			for n := range concurrency + 1 {
				b.publish(s.Requested(), s.request(fmt.Sprint("r", n)))
			}
			p := b.program(s, concurrency)
			b.beside.Go(func() {
				time.Sleep(5 * time.Second) // it is held by now, and nobody reads yet
				for n := range concurrency {
					b.publish("mandate.transactions.requested", map[string]any{"request_id": fmt.Sprint("l", n)})
					b.publish("mail.account.requested", map[string]any{"request_id": fmt.Sprint("a", n)})
				}
			})
			b.run(p, 2*time.Minute, nil)
			reads := b.exchanges(func(x exchange) bool { return !x.write() })
			for i := concurrency; i < len(reads) && reads[i].at.Sub(began) < 80*time.Second; i++ { // each lasts as long as it may
				if since := reads[i].at.Sub(reads[i-concurrency].at); since < timeout {
					t.Errorf("%d reads under way at %v", concurrency+1, reads[i].at)
				}
			}
			if len(reads) <= concurrency {
				t.Errorf("%d reads", len(reads))
			}
		})
	}
}
