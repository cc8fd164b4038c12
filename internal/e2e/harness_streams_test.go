package e2e

import (
	"fmt"
	"net/http"
	"time"

	"errand/internal/bus"
)

// waitOutcomes waits until n requests have an outcome under a filter, whichever it is.
func (in *installation) waitOutcomes(filter string, n int, within time.Duration) {
	in.t.Helper()
	in.until(fmt.Sprintf("%d outcomes under %s", n, filter), within, in.haveOutcomes(filter, n))
}

// untilReady waits until a program says that it is ready.
func (in *installation) untilReady(p *process) {
	in.t.Helper()
	in.until(p.name+" to be ready", time.Minute, func() bool {
		if !p.logged("admin server listens") {
			return false
		}
		status, _ := p.get("/readyz")
		return status == http.StatusOK
	})
}

// wantOnce wants n requests, each delivered once, called once and ended once.
func (in *installation) wantOnce(queue bus.Queue, well, call string, n int) {
	in.t.Helper()
	if q := in.queue(queue); q.Delivered.Consumer != uint64(n) || q.Delivered.Stream != uint64(n) || q.NumRedelivered != 0 {
		in.t.Errorf("%s: %d deliveries of %d requests, %d waiting as redelivered", queue.Name, q.Delivered.Consumer, q.Delivered.Stream, q.NumRedelivered)
	}
	if ended, calls := in.count(well), in.calls(call); ended != n || calls != int64(n) {
		in.t.Errorf("%d requests: %d ended well, with %d calls", n, ended, calls)
	}
}

// untilSettled waits until nothing waits in a queue or is in flight.
func (in *installation) untilSettled(q bus.Queue) {
	in.t.Helper()
	in.until("an empty "+q.Name, time.Minute, func() bool { return in.unsettled(q) == 0 })
}
