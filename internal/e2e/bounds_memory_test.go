package e2e

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"errand/internal/bus"
	"errand/internal/sandbox"
	"errand/pkg/messages"
)

// The long form of the backlog, which takes four minutes and a gigabyte of disk:
//
//	go test ./internal/e2e -run TestMemoryDoesNotGrowWithTheBacklog -v -timeout 30m -bounds.backlog 500000
var boundsBacklog = flag.Int("bounds.backlog", 20_000, "requests that wait in front of each program")

// growth is what peak memory may grow by when the work grows by any factor.
const growth = 1.3

// A program that works through what waits for it must not hold what it has done or has
// yet to do: its peak is no higher than with a short queue.
func TestMemoryDoesNotGrowWithTheBacklog(t *testing.T) {
	t.Parallel()
	const short = 2000
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		answer := `{"url":"https://mandate.example.com/intent"}`
		if strings.HasPrefix(r.URL.Path, "/api/v0/messages") {
			answer = `{"error":false,"status_code":200,"message":"OK","data":{"total_recipient":1}}`
		}
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(upstream.Close)
	for _, c := range writes {
		t.Run(c.program, func(t *testing.T) {
			in := install(t, "CONCURRENCY=64", "LOG_LEVEL=info", "UPSTREAM_TIMEOUT=30s", "MANDATE_API_URL="+upstream.URL,
				"MAIL_API_URL="+upstream.URL)
			peak := func(prefix string, backlog int) int {
				in.pile(c.queue, prefix, backlog, c.request)
				in.until("the queue to know its backlog", time.Minute, func() bool { return in.unsettled(c.queue) == backlog })
				p := in.start(c.program)
				end := time.Now().Add(time.Minute)
				in.until("work", 2*time.Minute, func() bool {
					return in.unsettled(c.queue) == 0 || time.Now().After(end) && in.unsettled(c.queue) < backlog-short
				})
				kib := p.peak()
				t.Logf("%d of %d requests: %d KiB", backlog-in.unsettled(c.queue), backlog, kib)
				p.stop(time.Minute)
				return kib
			}
			few := peak("a", short)
			if many := peak("b", *boundsBacklog); float64(many) > growth*float64(few) {
				t.Errorf("peak memory is %d KiB in front of %d requests, %d KiB in front of %d", many, *boundsBacklog, few, short)
			}
		})
	}
}

// A million recipients of one request take no more memory than the recipients of many requests:
// they are read as they are sent, and compared part by part.
func TestAMillionRecipientsTakeTheMemoryOfTwoThousand(t *testing.T) {
	const few, requests, many = 2000, 250, 1_000_000
	in := install(t, "UPSTREAM_TIMEOUT=30s")
	for i := range requests {
		in.publish("mail.send.requested", in.listed(fmt.Sprint("few", i), few))
	}
	peak := func(outcomes int) int {
		p := in.start("mail-consumer")
		in.waitOutcomes("mail.send.*.*", outcomes, 4*time.Minute)
		kib := p.peak()
		p.stop(time.Minute)
		return kib
	}
	small := peak(requests)
	large := message("many", many)
	to := large["to"].([]string)
	in.publish("mail.send.requested", in.listedAs(large, strings.Join(append(to, to[0]), "\n"))) // the first is the last, too
	after := peak(requests + 1)
	if t.Logf("peak memory: %d KiB, with %d recipients a request %d KiB", after, few, small); float64(after) > growth*float64(small) {
		t.Errorf("peak memory is %d KiB with %d recipients in a request, %d KiB with %d", after, many, small, few)
	}
	e := decode[messages.SendOutcome](t, in.wantOne("mail.send.accepted.many"))
	errorIf(t, e.Recipients != many || e.Accepted != many || e.Batches != many/1000 || e.Duplicates != 1,
		"%d of %d recipients accepted in %d batches, %d duplicates", e.Accepted, e.Recipients, e.Batches, e.Duplicates)
	const all = requests*few + many
	o := in.totals()
	errorIf(t, o.Mail.TwiceCount != 0 || o.Mail.Distinct != all || o.Mail.Recipients != all || o.Calls["send"] != all/1000,
		"%d calls served %d recipients, %d different ones, %d twice", o.Calls["send"], o.Mail.Recipients, o.Mail.Distinct, o.Mail.TwiceCount)
	q := in.queue(bus.SendQueue)
	errorIf(t, q.Delivered.Consumer != requests+1, "%d deliveries of %d requests", q.Delivered.Consumer, requests+1)
}

// endless is an upstream whose answers have no end. The first 500 KiB of as many as are made at once are all there before any goes on.
type endless struct {
	workers      int64
	begun, ended atomic.Int64
	all          chan struct{} // closed when every worker has the beginning
	beginning    []byte
}

func (e *endless) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	if r.Method != http.MethodPost {
		http.Error(w, "busy", http.StatusServiceUnavailable)
		return
	}
	defer e.ended.Add(1)
	_, _ = w.Write(e.beginning)
	_ = http.NewResponseController(w).Flush()
	if e.begun.Add(1) == e.workers {
		close(e.all)
	}
	select {
	case <-e.all:
	case <-r.Context().Done():
		return
	}
	for {
		if _, err := w.Write(e.beginning); err != nil {
			return
		}
	}
}

// An answer is read to 512 KiB and no further. Grown into and not yet collected, that is at most four times as much for each worker.
func TestEndlessAnswersToAllWorkersTakeBoundedMemory(t *testing.T) {
	t.Parallel()
	const workers = 63 // the last one waits at the program's other queue
	const bound = workers * 4 * 512
	for _, c := range writes {
		t.Run(c.program, func(t *testing.T) {
			upstream := &endless{workers: workers, all: make(chan struct{}), beginning: bytes.Repeat([]byte("["), 500<<10)}
			web := httptest.NewServer(upstream)
			t.Cleanup(web.Close)
			in := install(t, "CONCURRENCY=64", "LOG_LEVEL=info", "UPSTREAM_TIMEOUT=30s", "MANDATE_API_URL="+web.URL, "MAIL_API_URL="+web.URL)
			p := in.start(c.program)
			in.until("its pull to wait", time.Minute, func() bool { return in.queue(c.queue).NumWaiting == 1 })
			before := p.peak()
			in.pile(c.queue, "r", workers, c.request)
			in.until("all workers to have had enough", time.Minute, func() bool { return upstream.ended.Load() >= workers })
			if took := p.peak() - before; took > bound {
				t.Errorf("%d endless answers took %d KiB, want at most %d", workers, took, bound)
			} else {
				t.Logf("%d endless answers: %d KiB, before them %d", workers, took, before)
			}
		})
	}
}

// files is how many file descriptors the process has open.
func (p *process) files() int {
	p.t.Helper()
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.cmd.Process.Pid))
	must(p.t, err)
	return len(open)
}

// goroutines is how many goroutines the process says it has.
func (p *process) goroutines() int { return int(p.gauges()["go_goroutines"]) }

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
