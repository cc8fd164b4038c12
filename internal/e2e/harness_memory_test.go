//go:build linux

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
)

// peak is the most memory that the process has had resident so far, in KiB.
func (p *process) peak() int {
	p.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	must(p.t, err)
	for line := range strings.Lines(string(status)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "VmHWM:" {
			if kib, err := strconv.Atoi(f[1]); err == nil {
				return kib
			}
		}
	}
	p.t.Fatalf("no VmHWM: %s", status)
	return 0
}

// pile puts many requests into a queue at once.
func (in *installation) pile(q bus.Queue, prefix string, n int, request func(id string, more ...string) map[string]any) {
	in.t.Helper()
	subject := in.queue(q).Config.FilterSubject
	for i := range n {
		data, err := json.Marshal(request(fmt.Sprint(prefix, i)))
		if err == nil {
			_, err = in.js.PublishAsync(subject, data, jetstream.WithStallWait(time.Minute))
		}
		must(in.t, err)
	}
	select {
	case <-in.js.PublishAsyncComplete():
	case <-time.After(time.Minute):
		in.t.Fatal("the requests are not stored")
	}
}
