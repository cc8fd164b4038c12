//go:build linux

package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"errand/internal/bus"
	"errand/internal/programs"
	"errand/internal/sandbox"
	"errand/internal/sandbox/devkit/devtest"
)

// files is how many file descriptors the process has open.
func (p *process) files() int {
	p.t.Helper()
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.cmd.Process.Pid))
	must(p.t, err)
	return len(open)
}

// goroutines is what the process says of itself.
func (p *process) goroutines() (n int) {
	p.t.Helper()
	_, body := p.get("/metrics")
	for line := range strings.Lines(body) {
		if _, err := fmt.Sscanf(line, "go_goroutines %d", &n); err == nil {
			return n
		}
	}
	p.t.Fatalf("no go_goroutines:\n%s", body)
	return 0
}

// cutting lets a share of the calls of one kind end in a cut connection, before or after the work.
func (in *installation) cutting(operation string) {
	in.t.Helper()
	for seed, kind := range []string{sandbox.Cut, sandbox.AcceptCut, sandbox.Truncate} {
		in.fault(sandbox.Fault{Operation: operation, Kind: kind, Share: 0.1, Seed: uint64(seed)})
	}
}

// Under load a program has a connection for each worker, however many are cut; afterwards
// it has what it had before: neither a goroutine nor a file is left behind.
func TestAnIdleProgramHoldsWhatItHeldBeforeTheLoad(t *testing.T) {
	t.Parallel()
	const requests, workers = 1000, 64
	for _, c := range writes {
		calls, body := workers, c.request
		if c.call == "send" {
			calls, body = 2*workers, func(id string, _ ...string) map[string]any { return message(id, 4) }
		}
		t.Run(c.program, func(t *testing.T) {
			in := install(t, "CONCURRENCY=64", "LOG_LEVEL=info", "MAIL_BATCH_SIZE=2", "MAIL_BATCH_PARALLEL=2")
			in.latency(100 * time.Millisecond)
			p := in.start(c.program)
			in.until("its pull to wait", time.Minute, func() bool { return in.queue(c.queue).NumWaiting == 1 })
			goroutines, files := p.goroutines(), p.files()
			in.cutting(c.call)
			in.pile(c.queue, "r", requests, body)
			most := 0
			in.until("the work to be done", 2*time.Minute, func() bool {
				most = max(most, p.files())
				return in.unsettled(c.queue) == 0
			})
			in.until("its connections to close", time.Minute, func() bool {
				return p.files() <= files+3 && p.goroutines() <= goroutines+5
			})
			t.Logf("%d goroutines, then %d; %d files, at most %d, then %d", goroutines, p.goroutines(), files, most, p.files())
			if most > files+calls+16 { // a call may find a connection while a new one is made for it
				t.Errorf("%d files were open at once with %d calls, %d when idle", most, calls, files)
			}
			p.stop(time.Minute)
		})
	}
}

// A program that runs inside another one leaves nothing of itself there.
func TestAProgramThatEndedLeavesNoGoroutine(t *testing.T) {
	full(t)
	runtime.GC() // as beside does
	runtime.GC()
	n, nc := devtest.Provisioned(t)
	js, err := jetstream.New(nc)
	must(t, err)
	in := &installation{world: world{t: t, js: js, producer: js, box: sandbox.New(sandbox.Options{})}}
	in.lastOutput = in.outputs
	in.web = httptest.NewServer(in.box)
	t.Cleanup(in.web.Close)
	t.Cleanup(in.box.Close)
	in.set(func(s *sandbox.Settings) { s.LogDelay = 0 })
	log := zerolog.New(io.Discard)
	common := programs.Common{Base: programs.Base{NATS: bus.Connection{URL: n.URL}, AdminAddr: "127.0.0.1:0",
		ShutdownGrace: 20 * time.Second, Logger: &log},
		UpstreamTimeout: 30 * time.Second, RetryFirst: 10 * time.Millisecond, RetryMax: 100 * time.Millisecond, RetryTries: 5}
	requests := programs.Requests{Concurrency: 64, GiveUpAfter: time.Hour}
	mandate := programs.MandateAPI{APIURL: in.web.URL, APIVersion: "v3", APIToken: "token-for-tests", PortalKey: "portal-for-tests",
		Timezone: "Asia/Kuala_Lumpur"}
	mail := programs.MailAPI{APIURL: in.web.URL, APIKey: "key-for-tests"}

	in.pile(bus.EnrollQueue, "r", 1000, enrollment)
	in.leavesNoGoroutine(&programs.MandateConsumer{Common: common, Requests: requests, MandateAPI: mandate, ListSettle: time.Minute}, "enroll",
		func() bool { return in.unsettled(bus.EnrollQueue) == 0 })
	in.pile(bus.SendQueue, "r", 1000, toOne)
	in.leavesNoGoroutine(&programs.MailConsumer{Common: common, Requests: requests, MailAPI: mail, BatchSize: 1000, BatchParallel: 4}, "send",
		func() bool { return in.unsettled(bus.SendQueue) == 0 })
	in.leavesNoGoroutine(&programs.LogPoller{Common: common, MailAPI: mail, Interval: 10 * time.Millisecond, Limit: 20, Overlap: time.Hour,
		ReportAfter: time.Hour}, "logs",
		func() bool { return in.count("mail.delivery.>") >= in.totals().Mail.Distinct })
}

// leavesNoGoroutine runs a program until its work is done, while calls are cut.
func (in *installation) leavesNoGoroutine(p programs.Program, call string, done func() bool) {
	in.t.Helper()
	before, _ := goroutines()
	in.cutting(call)
	in.embed(p, done)
	after, stacks := goroutines()
	for end := time.Now().Add(30 * time.Second); after > before && time.Now().Before(end); after, stacks = goroutines() {
		runtime.Gosched()
	}
	errorIf(in.t, after > before, "%T: %d goroutines, before it %d\n%s", p, after, before, stacks)
}

// goroutines counts the goroutines of this process without the NATS server's.
func goroutines() (n int, stacks string) {
	b := make([]byte, 4<<20)
	stacks = string(b[:runtime.Stack(b, true)])
	for stack := range strings.SplitSeq(stacks, "\n\n") {
		if !strings.Contains(stack, "/nats-server/") {
			n++
		}
	}
	return n, stacks
}

// embed runs a program in this process until its work is done.
func (in *installation) embed(p programs.Program, done func() bool) {
	ctx, stop := context.WithCancel(in.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	in.until("the work to be done", time.Minute, func() bool { return len(ended) > 0 || done() })
	stop()
	must(in.t, <-ended)
	in.web.CloseClientConnections() // which a program would close after four seconds
}
