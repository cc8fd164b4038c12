package e2e

import (
	"fmt"
	"testing"
	"time"
)

// nats.go takes an empty message with a Status header for a word of the server's and
// gives it to nobody, so it stays in the queue and comes back after each AckWait, and
// costs the pull that it came to. A few of them, one of each kind, hold nobody up for
// long where there are several pulls or each is short; a queue of reads has one long one.
func TestEmptyMessagesThatLookLikeTheServersOwnBlockNobody(t *testing.T) {
	for _, q := range queues() {
		for _, concurrency := range []int{1, 8} {
			if reads := q.state == "listed" || q.state == "reported"; reads && concurrency > 1 {
				continue
			}
			t.Run(fmt.Sprint(q.subject, " ", concurrency), func(t *testing.T) {
				inBubble(t, func(t *testing.T, b *bubble) {
					for _, status := range []string{"100", "400", "404", "408", "409", "503", marked} {
						b.raw(q.subject, []string{"Status: " + status, "Description: " + marked + " Consumer Deleted"}, "")
					}
					const goods = 5
					for i := range goods {
						b.publish(q.subject, q.good(fmt.Sprint("good-", i)))
					}
					began := time.Now()
					logged, logger := b.logger()
					b.run(b.program(q, concurrency, logger), time.Hour, b.all(q.event(q.state, "*"), goods))
					if took, n := time.Since(began), len(b.told(q.event(q.state, "*"))); n != goods || took > 5*time.Minute {
						t.Errorf("%d of %d good ones answered, after %v", n, goods, took)
					}
					if n := logged.count(marked); n != 0 {
						t.Errorf("%d lines of the log hold data of a request", n)
					}
				})
			})
		}
	}
}
