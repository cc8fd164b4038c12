package sink_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"errand/internal/sandbox/devkit/devtest"
	"errand/pkg/messages"
)

// BenchmarkPublish stores rows as the email document has them. The CPU time includes the server, which is in this process.
func BenchmarkPublish(b *testing.B) {
	for _, size := range []int{100, 1000} {
		b.Run(fmt.Sprintf("%d_a_page", size), func(b *testing.B) {
			_, nc := devtest.Provisioned(b)
			d := newSink(b, nc)
			learn(b, d)
			page, n, before := matched(size), 0, cpuTime()
			for b.Loop() {
				for i := range page {
					page[i].Body.(*messages.DeliveryBody).EventID = textOf(n)
					n++
				}
				store(b, d, page)
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "rows/s")
			b.ReportMetric(float64((cpuTime()-before).Microseconds())/float64(n), "cpu-ms/1000rows")
		})
	}
}

func cpuTime() time.Duration {
	var used syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &used)
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// matched returns events about n rows of a matched request.
func matched(n int) (events []messages.Event) {
	at := messages.Time{Time: time.Now()}
	for i := range n {
		row := fmt.Appendf(nil, `{"created_at":"2026-01-31T00:00:00Z","envelope_id":"%018x","interface":"api",`+
			`"domain":"example.test","from":"sender@example.test","to":"payer%d@example.test","delivered":1,`+
			`"status":{"delivered":true,"ip":"192.0.2.25","mx":"mx1.example.test","response":"250 2.0.0 OK %x"}}`, i, i, i)
		events = append(events, messages.Event{Operation: messages.Delivery, State: messages.Delivered,
			ID: "order-2026-000123", Body: &messages.DeliveryBody{
				Common: messages.Common{RequestID: "order-2026-000123", At: at}, EventID: textOf(i), Entry: row,
				SMTP: messages.SMTP{Code: 250, Enhanced: "2.0.0"}, Match: messages.Match{Confidence: messages.MatchExact, Batch: 3},
				Recipient: "3.512"}})
	}
	return events
}

// BenchmarkLearn reads 200,000 ids.
func BenchmarkLearn(b *testing.B) {
	const stored = 200_000
	_, nc := devtest.Provisioned(b)
	d := newSink(b, nc)
	learn(b, d)
	for n := 0; n < stored; n += 1000 {
		store(b, d, rows(n, n+1000))
	}
	for b.Loop() {
		if got := len(learn(b, newSink(b, nc))); got != stored {
			b.Fatalf("learned %d, want %d", got, stored)
		}
	}
	b.ReportMetric(float64(stored)*float64(b.N)/b.Elapsed().Seconds(), "ids/s")
}
