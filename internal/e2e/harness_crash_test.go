package e2e

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"errand/internal/sandbox"
	"errand/pkg/messages"
)

// row is a part of the crash matrix: a request, what becomes of its calls, where its
// worker dies, and what must be published and done in the end.
type row struct {
	operation messages.Operation
	body      any
	id        string        // under which it is reported; "" is the body's request_id, r1
	first     []any         // requests for enrollment that are done before
	upstream  sandbox.Fault // what is wrong with its calls
	set       []string      // of the environment
	die       []string      // a cell each; "a, b" is to die at a, to be started again and to die at b
	want      outcome
}

// outcome is how a request ended, by its events and by the sandbox.
type outcome struct {
	state  messages.State
	reason messages.Reason
	calls  int64
	done   int  // enrollments, or recipients served, those served twice counted twice
	again  bool // the event says that a call was made after one of unknown fate
}

// inCall is not a failpoint: the program is killed from outside while its call is at work.
const inCall = "in call"

// cell is one cell of the matrix: one row's request, and one way to die.
type cell struct {
	*row
	*installation
	crashes []string
	worker  *process
	stopped *process      // it is paused where the others die
	hit     chan struct{} // closed when the worker was killed or stopped in a call
}

// atOnce is how many crashes are awaited at once: with many more a call would time out
// because everything starts at the same moment.
const atOnce = 12

// matrix lets the workers of all cells die, each in a separate installation, and judges what became of their
// requests. What takes long is the waiting for those that died, and that goes on at once.
func matrix(t *testing.T, rows []row, judge func(*cell)) {
	t.Helper()
	dir := failpointBuild.programs(t)
	parallel(t)
	var cells []*cell
	rounds := 0
	for i := range rows {
		for _, die := range rows[i].die {
			c := &cell{row: &rows[i], crashes: strings.Split(die, ", ")}
			cells, rounds = append(cells, c), max(rounds, len(c.crashes))
		}
	}
	// Those that wait longest begin first.
	slices.SortStableFunc(cells, func(a, b *cell) int { return len(b.crashes) - len(a.crashes) })
	for i, c := range cells {
		if i >= atOnce {
			cells[i-atOnce].die(0)
		}
		c.begin(t, dir)
	}
	for _, c := range cells[max(0, len(cells)-atOnce):] {
		c.die(0)
	}
	for round := 1; round < rounds; round++ {
		for _, c := range cells {
			c.die(round)
		}
	}
	for _, c := range cells {
		t.Run(c.name(), func(t *testing.T) {
			c.t = t
			c.settle()
			judge(c)
		})
	}
}

func (c *cell) name() string {
	kind := c.upstream.Kind
	if kind == "" {
		kind = "ok"
	}
	body, _ := c.body.(map[string]any)
	return fmt.Sprint(c.operation, " ", kind, " ", body["on_unknown"], ": ", strings.Join(c.crashes, ", "))
}

// begin asks for what the cell is about, and starts the worker that will die.
func (c *cell) begin(t *testing.T, dir string) {
	t.Helper()
	n := securedServer(t)
	c.installation = installAt(t, dir, n.URL, 1, append([]string{"CONCURRENCY=4", "RETRY_TRIES=2"}, c.set...)...)
	c.nats = n
	if len(c.first) > 0 {
		for _, body := range c.first {
			c.publish(messages.Enroll.Requested(), body)
		}
		p := c.start("mandate-consumer")
		c.waitOutcomes("mandate.enroll.*.*", len(c.first), time.Minute)
		p.stop(time.Minute)
	}
	if c.retries() {
		c.list()
	}
	if c.upstream.Kind != "" {
		c.fault(c.upstream)
	}
	_, err := c.js.Publish(t.Context(), c.operation.Requested(), c.bytes())
	must(t, err)
	c.work(0)
}

// retries reports whether an enrollment is made again on proof of the list.
func (c *cell) retries() bool {
	body, _ := c.body.(map[string]any)
	return c.operation == messages.Enroll && body["on_unknown"] == "retry"
}

// bytes is the request as it is published.
func (c *cell) bytes() []byte { return encode(c.t, c.body) }

// work starts the worker of the n-th crash; after all crashes one that goes on.
func (c *cell) work(n int) {
	c.t.Helper()
	domain, _, _ := strings.Cut(string(c.operation), ".")
	point := ""
	if n < len(c.crashes) && !strings.HasSuffix(c.crashes[n], inCall) {
		point = c.crashes[n]
	}
	if !strings.Contains(point, "mail.") { // a store of the request's own history
		point = strings.Replace(point, "store ", "store "+string(c.operation)+".", 1)
	}
	c.worker = c.start(domain+"-consumer", "ERRAND_FAILPOINT="+point)
	if n < len(c.crashes) {
		c.worker.expectEnd() // it may end
		if strings.HasSuffix(c.crashes[n], inCall) {
			c.hit = make(chan struct{})
			go c.hitInCall(c.worker, strings.HasPrefix(c.crashes[n], "stop")) // waited for by die
		}
	}
}

// hitInCall kills or stops a worker as soon as the calls that meet the fault are at
// work. One that made no such call within a minute is killed too, and the test fails.
func (c *cell) hitInCall(worker *process, stop bool) {
	defer close(c.hit)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(time.Minute); c.box.Faults()[0].Fired < max(c.upstream.Times, 1) || c.inFlight.Load() == 0; <-tick.C {
		if time.Now().After(end) {
			c.t.Errorf("%s: no call", c.name())
			break
		}
	}
	if stop {
		worker.pause()
		return
	}
	worker.kill()
}

// die waits for the n-th crash, if the cell has so many, and starts the next worker.
func (c *cell) die(n int) {
	c.t.Helper()
	if n >= len(c.crashes) {
		return
	}
	point, stops := strings.CutPrefix(c.crashes[n], "stop at ")
	if point == inCall {
		<-c.hit
	}
	switch {
	case !stops:
		c.worker.wantKilled()
	case point != inCall:
		c.until("it to stand still at "+point, time.Minute, func() bool { return c.worker.logged("failpoint: stopped") })
		fallthrough
	default:
		c.stopped = c.worker
	}
	c.work(n + 1)
}

// wantKilled waits for the process to die at its failpoint.
func (p *process) wantKilled() {
	p.t.Helper()
	p.await(time.Minute)
	if s, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || s.Signal() != syscall.SIGKILL {
		p.t.Fatalf("%s ended with %v, want %v\n%s", p.name, p.cmd.ProcessState, p.cmd.Env[len(p.cmd.Env)-1], p.lastOutput())
	}
}

// settle waits until the request is done with and the last worker has ended in order.
func (c *cell) settle() {
	c.t.Helper()
	c.waitOutcomes(c.filter(), 1, 2*time.Minute)
	c.untilSettled(queueOf(c.operation.Requested()))
	c.worker.stop(time.Minute)
}

// reported is the id under which the request is reported.
func (c *cell) reported() string { return cmp.Or(c.id, "r1") }

func (c *cell) filter() string { return c.operation.Filter(c.reported()) }

// checkCell compares what became of the cell with its row.
func checkCell(c *cell) {
	c.t.Helper()
	e := c.wantFinal(c.filter())
	o := c.oracle()
	got := outcome{state: e.state(), reason: messages.Reason(e.reason())}
	got.again, _ = e.Body["after_unknown"].(bool)
	switch c.operation {
	case messages.Enroll:
		if got.calls, got.done = o.Calls["enroll"], o.Enroll.Accepted; c.retries() { // without the other program's
			got.calls, got.done = got.calls-1, got.done-1
		}
	case messages.Send:
		got.calls, got.done = o.Calls["send"], int(o.Mail.Recipients)
	case messages.Transactions:
		got.calls, got.done = o.Calls["transactions"], number(e.Body["total"])
	case messages.Account:
		got.calls = o.Calls["account"]
	}
	if got.state == messages.Uncertain {
		got.again = c.want.again // the call that nobody knows of may have been a second one
	}
	errorIf(c.t, got != c.want, "got  %+v\nwant %+v\n%s", got, c.want, c.transcript())
	c.wantDeadLetter(e)
	errorIf(c.t, got.reason == messages.ReasonLinkLost && e.evidence() != 1, "link_lost with %d records: %s", e.evidence(), e.Raw)
}

// wantDeadLetter wants the request's own bytes among the dead letters if it failed, is
// uncertain, or has batches that were not accepted, once, and no other.
func (c *cell) wantDeadLetter(e event) {
	c.t.Helper()
	letters := c.events("dead.>")
	reason := e.reason()
	if e.state() == messages.Partial {
		for _, u := range decode[messages.SendOutcome](c.t, e).Unsettled {
			if u.State != messages.Accepted && reason == "" {
				reason = string(u.Reason)
			}
		}
	}
	if e.state() != messages.Failed && e.state() != messages.Uncertain && (e.state() != messages.Partial || reason == "") {
		errorIf(c.t, len(letters) != 0, "%s has %d dead letters\n%s", e.state(), len(letters), c.transcript())
		return
	}
	if len(letters) != 1 {
		c.t.Fatalf("%s has %d dead letters\n%s", e.state(), len(letters), c.transcript())
	}
	d := letters[0]
	errorIf(c.t, d.Raw != string(c.bytes()) || d.Header.Get("Errand-Request-Id") != c.reported() || d.Header.Get("Errand-Reason") != reason,
		"dead letter of %s: %v %s", e.Raw, d.Header, d.Raw)
}

// transcript is every event, and the last output of the programs.
func (c *cell) transcript() string {
	c.t.Helper()
	var b strings.Builder
	for _, filter := range []string{"mandate.>", "mail.>", "dead.>"} {
		for _, e := range c.events(filter) {
			fmt.Fprintf(&b, "%s %s\n", e.Subject, e.Raw)
		}
	}
	return b.String() + c.lastOutput()
}
