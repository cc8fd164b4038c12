package e2e

import (
	"fmt"
	"testing"
	"time"
)

// An empty message with a Status header looks like a word of the server's on a pull, and
// the NATS library takes it for one: a few of them would take every pull there is.
func TestEmptyMessagesThatLookLikeTheServersOwnBlockNobody(t *testing.T) {
	for _, q := range operations {
		for _, concurrency := range []int{2, 8} {
			runInBubble(t, fmt.Sprint(q.Requested(), " ", concurrency), func(t *testing.T, b *bubble) {
				const bad, goods = 48, 5
				statuses := []string{"100", "400", "404", "408", "409", "503", payerMarker}
				for i := range bad {
					b.raw(q.Requested(), []string{"Status: " + statuses[i%len(statuses)], "Description: " + payerMarker + " Consumer Deleted"}, "")
				}
				for i := range goods {
					b.publish(q.Requested(), q.request(fmt.Sprint("good-", i)))
				}
				began := time.Now()
				logged := b.keepLogs()
				b.run(b.program(q, concurrency), time.Hour, b.published(q.Subject(q.succeeded, "*"), goods))
				if took, n := time.Since(began), b.count(q.Subject(q.succeeded, "*")); n != goods || took > 5*time.Minute {
					t.Errorf("%d of %d good ones answered, after %v", n, goods, took)
				}
				if n := b.count(q.Subject("failed", "*")); n != bad {
					t.Errorf("%d of %d bad ones reported", n, bad)
				}
				if n := logged.count(payerMarker); n != 0 {
					t.Errorf("%d lines of the log hold data of a request", n)
				}
			})
		}
	}
}
