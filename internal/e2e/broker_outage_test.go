package e2e

import (
	"bytes"
	"flag"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/rs/zerolog"

	"errand/internal/bus"
	"errand/internal/sandbox"
	"errand/internal/sandbox/devkit"
	"errand/pkg/messages"
)

// NATS is away for half an hour, all of it or only its JetStream, with calls in flight and more requests waiting: each
// call has an outcome or is known to be lost, no call is made twice, the waiting ones are made, and the log stays short.
func TestHalfAnHourWithoutNATSLosesNothing(t *testing.T) {
	full(t) // nor under the race detector: the server itself races when its JetStream is enabled
	for name, c := range map[string]struct {
		gone, back func(*devkit.NATS, string) error
	}{
		"stopped": {func(n *devkit.NATS, _ string) error { n.Stop(); return nil }, func(n *devkit.NATS, _ string) error { return n.Restart() }},
		"without JetStream": {func(n *devkit.NATS, _ string) error { return n.Server.DisableJetStream() },
			func(n *devkit.NATS, store string) error {
				return n.Server.EnableJetStream(&server.JetStreamConfig{StoreDir: store})
			}},
	} {
		runInBubble(t, name, func(t *testing.T, b *bubble) {
			const requests = 20
			b.latency(3 * time.Second)
			b.request(enrollOp, "r", requests, "on_unknown", "report")
			p, said := b.mandates(), &output{}
			log := zerolog.New(said).Level(zerolog.InfoLevel)
			p.Logger = &log
			stop := b.running(p)
			time.Sleep(4 * time.Second)                     // the first calls are done, the second ones in flight
			store := filepath.Dir(b.nats.Server.StoreDir()) // the server adds a folder
			must(t, c.gone(b.nats, store))
			before := said.count()
			time.Sleep(30 * time.Minute)
			n := said.count() - before
			errorIf(t, n < 1 || n > 30, "%d lines of log in half an hour\n%s", n, said)
			calls := b.calls("enroll")
			must(t, c.back(b.nats, store))
			time.Sleep(3 * time.Minute)
			stop()
			errorIf(t, said.count("what the program needs of NATS is there again") == 0, "it does not say that it works again\n%s", said)
			for i := range requests {
				id := fmt.Sprint("r", i)
				got := b.count("mandate.enroll.succeeded."+id) + b.count("mandate.enroll.uncertain."+id)
				errorIf(t, got != 1, "%s has %d outcomes", id, got)
			}
			o := b.oracle()
			errorIf(t, calls < 8 || calls >= requests || o.Calls["enroll"] != requests || o.Enroll.TwiceCount != 0,
				"%d calls before and %d after, for %d requests", calls, o.Calls["enroll"], requests)
			b.queueEmpty("MANDATE_REQUESTS")
			t.Logf("%d succeeded; %d lines of log", b.count("mandate.enroll.succeeded.*"), said.count())
		})
	}
}

// Connections that break between a write and its acknowledgement: the writer finds out
// what became of it. Nothing is called again, and nothing is uncertain for it.
func TestLostAcknowledgementsCostNothing(t *testing.T) {
	const requests = 40
	in := install(t, "CONCURRENCY=4")
	var writes atomic.Int64
	w := newProxy(t, in.nats.URL, func(sent []byte) bool {
		n := bytes.Count(sent, []byte("HPUB mandate.enroll.")) + bytes.Count(sent, []byte("HPUB dead."))
		return n > 0 && writes.Add(int64(n))%7 < int64(n)
	})
	in.latency(50 * time.Millisecond)
	p := in.start("mandate-consumer", "NATS_URL="+w.url)
	for i := range requests {
		body := enrollment(fmt.Sprint("r", i), "on_unknown", "report") // what is not known would show
		if i%10 == 0 {
			delete(body, "amount")
		}
		in.publish("mandate.enroll.requested", body)
	}
	in.waitOutcomes("mandate.enroll.*.*", requests, 2*time.Minute)
	in.untilSettled(bus.EnrollQueue)
	p.stop(time.Minute)
	ok, failed := in.count("mandate.enroll.succeeded.*"), in.count("mandate.enroll.failed.*")
	errorIf(t, ok != requests*9/10 || failed != requests/10, "%d succeeded and %d failed of %d", ok, failed, requests)
	equal(t, "calls", in.calls("enroll"), requests*9/10)
	for id, history := range in.histories("mandate.enroll.*.*") {
		_, err := finalEvent(history)
		errorIf(t, err != nil, "%s: %v", id, err)
	}
	equal(t, "dead letters", in.count("dead.mandate.enroll.requested"), requests/10)
	errorIf(t, w.cuts.Load() < 5, "only %d cuts", w.cuts.Load())
	t.Logf("%d cuts", w.cuts.Load())
}

// The network swallows all between a program and its server while a call is on its way; the connection does not break.
// The program says soon that it cannot work and calls for nothing else; another one takes its work over. When all is
// well again, it finds itself fenced.
func TestPartitionedProgramMakesNoCallAndIsReplaced(t *testing.T) {
	in := install(t)
	w := newProxy(t, in.nats.URL, nil)
	in.fault(sandbox.Fault{Operation: "enroll", Kind: sandbox.DelayAnswer, Match: "order-in-call",
		Delay: sandbox.Duration(1500 * time.Millisecond)})
	partitioned := in.start("mandate-consumer", "NATS_URL="+w.url)
	in.untilReady(partitioned)
	in.publish("mandate.enroll.requested", enrollment("in-call", "on_unknown", "report"))
	in.until("the call", time.Minute, func() bool { return in.inFlight.Load() == 1 })
	w.partition()
	began := time.Now()
	for i := range 10 { // the server has its pulls, and sends them there
		in.publish("mandate.enroll.requested", enrollment(fmt.Sprint("r", i)))
	}
	in.until("it to say that it cannot work", time.Minute, partitioned.says(http.StatusServiceUnavailable))
	t.Logf("not ready after %v", time.Since(began).Round(time.Second/10))
	equal(t, "calls", in.calls("enroll"), 1)
	other := in.start("mandate-consumer")
	in.waitOutcomes("mandate.enroll.*.*", 11, time.Minute)
	if e := in.wantOne("mandate.enroll.uncertain.in-call"); e.reason() != "link_lost" {
		t.Errorf("body: %s", e.Raw)
	}
	w.heal()
	in.until("it to find itself fenced", 2*time.Minute, func() bool {
		return partitioned.logged(`"request_id":"in-call"`, `"message":"nak with delay"`, "another worker wrote in between")
	})
	in.untilReady(partitioned)
	in.untilSettled(bus.EnrollQueue)
	other.stop(time.Minute)
	partitioned.stop(time.Minute)
	equal(t, "calls", in.calls("enroll"), 11)
	for id, history := range in.histories("mandate.enroll.*.*") {
		e, err := finalEvent(history)
		errorIf(t, err != nil || (id != "in-call") != (e.state() == messages.Succeeded), "%s: %s, %v", id, e.state(), err)
	}
}

// A minute is long; by default the partition ends when the program has noticed.
//
//	go test ./internal/e2e -run TestPartitionedProgramPublishesItsOutcomeLater -v -broker.partition
var brokerPartition = flag.Bool("broker.partition", false,
	"partition a program from its server until it drops the connection, which takes a minute")

// The same with no replacement: the call's answer is kept and published when all is
// well again, over the same connection or over another one.
func TestPartitionedProgramPublishesItsOutcomeLater(t *testing.T) {
	in := install(t)
	w := newProxy(t, in.nats.URL, nil)
	in.fault(sandbox.Fault{Operation: "enroll", Kind: sandbox.DelayAnswer, Delay: sandbox.Duration(1500 * time.Millisecond)})
	p := in.start("mandate-consumer", "NATS_URL="+w.url)
	in.untilReady(p)
	in.publish("mandate.enroll.requested", enrollment("r1", "on_unknown", "report"))
	in.until("the call", time.Minute, func() bool { return in.inFlight.Load() == 1 })
	w.partition()
	began, says := time.Now(), "JetStream does not answer"
	if *brokerPartition {
		says = "not connected to NATS"
	}
	in.until("it to say: "+says, 2*time.Minute, func() bool {
		_, body := p.get("/readyz")
		return strings.Contains(body, says)
	})
	t.Logf("%s, after %v", says, time.Since(began).Round(time.Second))
	if before := w.tries(); *brokerPartition {
		in.until("it to try to come back", time.Minute, func() bool { return w.tries() > before+1 })
	}
	w.heal()
	in.waitOutcomes("mandate.enroll.*.r1", 1, time.Minute)
	in.untilSettled(bus.EnrollQueue)
	in.untilReady(p)
	p.stop(time.Minute)
	e := in.wantFinal("mandate.enroll.*.r1")
	errorIf(t, e.state() != messages.Succeeded || in.calls("enroll") != 1, "%d calls; %s: %s", in.calls("enroll"), e.Subject, e.Raw)
}
