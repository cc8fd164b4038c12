package sink_test

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"errand/internal/sandbox/devkit/devtest"
	"errand/pkg/messages"
)

// BenchmarkPublish stores rows as the email document has them, in pages of which some are
// under way at once. The CPU time includes the server, which is in this process.
func BenchmarkPublish(b *testing.B) {
	for _, size := range []int{100, 1000} {
		for _, under := range []int{1, inFlight} {
			b.Run(fmt.Sprintf("%d_a_page_%d_under_way", size, under), func(b *testing.B) {
				_, nc := devtest.Provisioned(b)
				d := newSink(b, nc)
				learn(b, d)
				page, n, waits := matched(size), 0, make([]func() (int, error), 0, under)
				end := func() {
					if stored, err := waits[0](); err != nil || stored != size {
						b.Fatal(stored, err)
					}
					waits = append(waits[:0], waits[1:]...)
				}
				before := cpuTime()
				for b.Loop() {
					for i := range page {
						page[i].Body.(*messages.DeliveryBody).EventID = textOf(n)
						n++
					}
					if waits = append(waits, d.Publish(context.Background(), page)); len(waits) == under {
						end()
					}
				}
				for len(waits) > 0 {
					end()
				}
				b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "rows/s")
				b.ReportMetric(float64((cpuTime()-before).Microseconds())/float64(n), "cpu-ms/1000rows")
			})
		}
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
