//go:build unix

package e2e

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"errand/internal/bus"
	"errand/internal/sandbox"
	"errand/pkg/messages"
)

// line is the network between a program and its nats-server.
type line struct {
	url  string
	dead chan struct{} // closed at the end

	mu     sync.Mutex
	still  chan struct{} // not nil while nothing passes; closed when it passes again
	conns  []net.Conn
	cuts   atomic.Int64
	cutsAt func(sent []byte) bool // whether to cut once the server had this, before it answers
}

// lineTo makes a line to the server at url.
func lineTo(t *testing.T, url string, cutsAt func([]byte) bool) *line {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &line{url: "nats://" + l.Addr().String(), dead: make(chan struct{}), cutsAt: cutsAt}
	var passers sync.WaitGroup
	passers.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", strings.TrimPrefix(url, "nats://"))
			if err != nil {
				_ = client.Close()
				continue
			}
			w.mu.Lock()
			w.conns = append(w.conns, client, server)
			w.mu.Unlock()
			passers.Go(func() { w.pass(client, server, w.cutsAt) })
			passers.Go(func() { w.pass(server, client, nil) })
		}
	})
	t.Cleanup(func() {
		close(w.dead)
		_ = l.Close()
		w.mu.Lock()
		for _, c := range w.conns {
			_ = c.Close()
		}
		w.mu.Unlock()
		passers.Wait()
	})
	return w
}

// pass passes what comes from one end on to the other.
func (w *line) pass(from, to net.Conn, cutsAt func([]byte) bool) {
	defer to.Close()
	defer from.Close()
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		if !w.passes() {
			return
		}
		if cutsAt != nil && cutsAt(b[:n]) {
			// The server has it, and its answer goes nowhere.
			_ = from.Close()
			_, _ = to.Write(b[:n])
			w.cuts.Add(1)
			_, _ = io.Copy(io.Discard, to)
			return
		}
		if _, e := to.Write(b[:n]); e != nil || err != nil {
			return
		}
	}
}

// passes waits while nothing passes; false at the end.
func (w *line) passes() bool {
	w.mu.Lock()
	still := w.still
	w.mu.Unlock()
	if still == nil {
		return true
	}
	select {
	case <-still:
		return true
	case <-w.dead:
		return false
	}
}

// part lets nothing pass any more, without a word to either end; heal ends it.
func (w *line) part() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.still = make(chan struct{})
}

// tries is how many connections were made.
func (w *line) tries() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.conns) / 2
}

func (w *line) heal() {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.still)
	w.still = nil
}

// Connections that break between a write and its acknowledgement: the writer finds out
// what became of it. Nothing is called again, and nothing is uncertain for it.
func TestLostAcknowledgementsCostNothing(t *testing.T) {
	const requests = 40
	in := install(t, "CONCURRENCY=4")
	var writes atomic.Int64
	w := lineTo(t, in.n.URL, func(sent []byte) bool {
		n := bytes.Count(sent, []byte("HPUB mandate.enroll.")) + bytes.Count(sent, []byte("HPUB dead."))
		return n > 0 && writes.Add(int64(n))%7 < int64(n)
	})
	in.set(func(s *sandbox.Settings) { s.Latency = sandbox.Duration(50 * time.Millisecond) })
	p := in.start("mandate-consumer", "NATS_URL="+w.url)
	for i := range requests {
		body := enrollment(fmt.Sprint("r", i), "on_unknown", "report") // what is not known would show
		if i%10 == 0 {
			delete(body, "amount")
		}
		in.publish("mandate.enroll.requested", body)
	}
	in.waitTold("mandate.enroll.*.*", requests, 2*time.Minute)
	in.until("an empty queue", 30*time.Second, func() bool { return in.left(bus.EnrollQueue) == 0 })
	p.stop(20 * time.Second)
	if ok, failed := in.count("mandate.enroll.succeeded.*"), in.count("mandate.enroll.failed.*"); ok != requests*9/10 || failed != requests/10 {
		t.Errorf("%d succeeded and %d failed of %d", ok, failed, requests)
	}
	if calls := in.calls("enroll"); calls != requests*9/10 {
		t.Errorf("%d calls", calls)
	}
	for id, history := range in.histories("mandate.enroll.*.*") {
		if _, err := end(history); err != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
	if dead := in.count("dead.mandate.enroll.requested"); dead != requests/10 {
		t.Errorf("%d dead letters", dead)
	}
	if w.cuts.Load() < 5 {
		t.Errorf("only %d cuts", w.cuts.Load())
	}
	t.Logf("%d cuts", w.cuts.Load())
}

// The network swallows all between a program and its server while a call is on its
// way; the connection does not break. The program says soon that it cannot work and
// calls for nothing else; another one takes its work over. When all is well again, it
// finds itself fenced.
func TestPartedProgramCallsForNothingAndIsReplaced(t *testing.T) {
	in := install(t)
	w := lineTo(t, in.n.URL, nil)
	in.fault(sandbox.Fault{Operation: "enroll", Kind: sandbox.DelayAnswer, Match: "order-in-call", Delay: sandbox.Duration(1500 * time.Millisecond)})
	parted := in.start("mandate-consumer", "NATS_URL="+w.url)
	in.untilReady(parted)
	in.publish("mandate.enroll.requested", enrollment("in-call", "on_unknown", "report"))
	in.until("the call", 20*time.Second, func() bool { return in.inFlight.Load() == 1 })
	w.part()
	began := time.Now()
	for i := range 10 { // the server has its pulls, and sends them there
		in.publish("mandate.enroll.requested", enrollment(fmt.Sprint("r", i)))
	}
	in.until("it to say that it cannot work", 30*time.Second, func() bool {
		status, _ := parted.get("/readyz")
		return status == http.StatusServiceUnavailable
	})
	t.Logf("not ready after %v", time.Since(began).Round(time.Second/10))
	if calls := in.calls("enroll"); calls != 1 {
		t.Errorf("%d calls, want the one before", calls)
	}
	other := in.start("mandate-consumer")
	in.waitTold("mandate.enroll.*.*", 11, time.Minute)
	if e := in.wantOne("mandate.enroll.uncertain.in-call"); e.reason() != "link_lost" {
		t.Errorf("body: %s", e.Raw)
	}
	w.heal()
	in.until("it to find itself fenced", 2*time.Minute, func() bool {
		return parted.says(`"request_id":"in-call"`, `"message":"put back"`, "another worker wrote in between")
	})
	in.untilReady(parted)
	in.until("an empty queue", 30*time.Second, func() bool { return in.left(bus.EnrollQueue) == 0 })
	other.stop(20 * time.Second)
	parted.stop(20 * time.Second)
	if calls := in.calls("enroll"); calls != 11 {
		t.Errorf("%d calls for 11 requests", calls)
	}
	for id, history := range in.histories("mandate.enroll.*.*") {
		if e, err := end(history); err != nil || (id != "in-call") != (e.state() == messages.Succeeded) {
			t.Errorf("%s: %s, %v", id, e.state(), err)
		}
	}
}

// A minute is long; by default the parted program is let back when it has noticed.
//
//	go test ./internal/e2e -run TestPartedProgramTells -v -broker.parted
var brokerParted = flag.Bool("broker.parted", false, "part a program from its server until it gives the connection up, which takes a minute")

// The same with nobody to replace it: the call's answer is kept and told when all is
// well again, over the same connection or over another one.
func TestPartedProgramTellsItsOutcomeLater(t *testing.T) {
	in := install(t)
	w := lineTo(t, in.n.URL, nil)
	in.fault(sandbox.Fault{Operation: "enroll", Kind: sandbox.DelayAnswer, Delay: sandbox.Duration(1500 * time.Millisecond)})
	p := in.start("mandate-consumer", "NATS_URL="+w.url)
	in.untilReady(p)
	in.publish("mandate.enroll.requested", enrollment("r1", "on_unknown", "report"))
	in.until("the call", 20*time.Second, func() bool { return in.inFlight.Load() == 1 })
	w.part()
	began, says := time.Now(), "JetStream does not answer"
	if *brokerParted {
		says = "not connected to NATS"
	}
	in.until("it to say: "+says, 2*time.Minute, func() bool {
		_, body := p.get("/readyz")
		return strings.Contains(body, says)
	})
	t.Logf("%s, after %v", says, time.Since(began).Round(time.Second))
	if before := w.tries(); *brokerParted {
		in.until("it to try to come back", time.Minute, func() bool { return w.tries() > before+1 })
	}
	w.heal()
	in.waitTold("mandate.enroll.*.r1", 1, time.Minute)
	in.until("an empty queue", 30*time.Second, func() bool { return in.left(bus.EnrollQueue) == 0 })
	in.untilReady(p)
	p.stop(20 * time.Second)
	if e := in.oneEnd("mandate.enroll.*.r1"); e.state() != messages.Succeeded || in.calls("enroll") != 1 {
		t.Errorf("%d calls; %s: %s", in.calls("enroll"), e.Subject, e.Raw)
	}
}
