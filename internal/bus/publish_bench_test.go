package bus_test

import (
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"errand/internal/bus"
	"errand/internal/sandbox/devkit/devtest"
)

// BenchmarkPublish stores events that are each fenced on their history, by one writer and by many at once.
func BenchmarkPublish(b *testing.B) {
	for _, writers := range []int{1, 64} {
		b.Run(fmt.Sprintf("%d_writers", writers), func(b *testing.B) {
			_, nc := devtest.Provisioned(b)
			p := newLog(b, nc).Publisher
			var next atomic.Uint64
			b.SetParallelism(writers)
			b.ReportAllocs()
			before := cpuTime()
			defer func() { b.ReportMetric(float64((cpuTime()-before).Microseconds())/float64(b.N), "cpu-us/write") }() // with the server's
			write := func() {
				id := fmt.Sprint("r", next.Add(1))
				m := &nats.Msg{Subject: "mandate.enroll.started." + id, Data: []byte("{}"), Header: nats.Header{}}
				bus.Fence(m.Header, "mandate.enroll.*."+id, 0)
				if _, err := p.Publish(b.Context(), m); err != nil {
					b.Error(err)
				}
			}
			if writers == 1 {
				for b.Loop() {
					write()
				}
				return
			}
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					write()
				}
			})
		})
	}
}

func cpuTime() time.Duration {
	var used syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &used)
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
