package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/sandbox"
	"errand/pkg/messages"
)

// mandates is an installation whose payers decide, as the sandbox has them.
type mandates struct {
	*installation
	orders  map[string]string // by request
	kills   atomic.Int64
	killers sync.WaitGroup
	payers  sync.WaitGroup
}

// installMandates makes one with an address at which callbacks are taken.
func installMandates(t *testing.T) (m *mandates, callbacks string) {
	callbacks = ports(t, 1)[0]
	m = &mandates{orders: map[string]string{}, installation: install(t, "MANDATE_CALLBACK_SECRET="+callbackSecret,
		"TRANSACTIONS_INTERVAL=500ms", "TRANSACTIONS_RATE=100")}
	return m, callbacks
}

// killAgain kills a program about every second, and starts it again at once.
func (m *mandates) killAgain(ctx context.Context, draw *rand.Rand, program string, env ...string) {
	for ctx.Err() == nil {
		p, err := m.launch(program, env...)
		if err != nil {
			m.t.Error(err)
			return
		}
		select {
		case <-time.After(around(time.Second, draw)):
			m.kills.Add(1)
		case <-p.ended:
			m.t.Errorf("%s ended by itself with %d\n%s", program, p.status, p.lastOutput())
			return
		case <-ctx.Done():
		}
		p.kill()
	}
}

// decide has each payer decide some time after the link is published.
func (m *mandates) decide(ctx context.Context, while time.Duration) {
	m.t.Helper()
	links, err := m.js.OrderedConsumer(ctx, bus.MandateEvents,
		jetstream.OrderedConsumerConfig{FilterSubjects: []string{"mandate.enroll.succeeded.*"}})
	must(m.t, err)
	draw := rand.New(rand.NewPCG(1, 2))
	reading, err := links.Consume(func(e jetstream.Msg) {
		var event struct{ Enrollment struct{ URL string } }
		var n int
		id := e.Subject()[strings.LastIndexByte(e.Subject(), '.')+1:]
		if _, err := fmt.Sscanf(id, "r%d", &n); err != nil || json.Unmarshal(e.Data(), &event) != nil {
			m.t.Errorf("%s: %v: %s", e.Subject(), err, e.Data())
		}
		if decision := decisionOf(n); decision != "" {
			after := time.Duration(draw.Int64N(int64(while)))
			m.payers.Go(func() {
				wait(ctx, after)
				noError(m.t, open(m.box, event.Enrollment.URL, decision))
			})
		}
	})
	must(m.t, err)
	m.t.Cleanup(reading.Stop)
}

// ask publishes n enrollments, two of which have one order number now and then; others than we enroll payers meanwhile.
func (m *mandates) ask(n, others int) {
	m.t.Helper()
	for i := range n {
		id := fmt.Sprint("r", i)
		m.orders[id] = "order-" + id
		if i%100 == 51 {
			m.orders[id] = fmt.Sprint("order-r", i-1)
		}
		m.publish("mandate.enroll.requested", enrollment(id, "order_number", m.orders[id]))
		if i%(n/others) == 0 {
			m.direct("/v3/mandates", enrollment("else", "order_number", fmt.Sprint("else-", i), "portal_key", portalKey))
		}
	}
}

// approved are the order numbers of our active mandates.
func (m *mandates) approved() (orders []string) {
	for _, r := range m.box.Oracle(sandbox.Query{Records: true}).Records {
		if r.Type == "Enrollment" && r.States[len(r.States)-1].State == "Approved" {
			orders = append(orders, r.OrderNumber)
		}
	}
	return orders
}

// allPublished reports whether there are as many events of each state as records are in it, or more.
func (m *mandates) allPublished() bool {
	o := m.totals().Enroll
	for op, states := range map[messages.Operation]map[string]int{messages.Application: o.States, messages.Deduction: o.Deductions} {
		for state, n := range states {
			if m.count(op.Subject(messages.State(strings.ToLower(state)), "*")) < n {
				return false
			}
		}
	}
	return true
}

// Payers approve, decline, cancel, let the link expire or never open it; the service calls back
// twice, forges, or forgets; the link of some is lost; deductions are made in three cycles, and
// some bounce. Two pollers and the receiver are killed every second all the while. In the end the
// state of each record is one event, under the request that it is of.
func TestApprovalsAndDeductionsArePublishedOnceThroughKills(t *testing.T) {
	const n = 2000
	m, callbacks := installMandates(t)
	m.set(func(s *sandbox.Settings) {
		s.CallbackCopies, s.CallbackForged, s.CallbackLost, s.CallbackWait = 2, 0.1, 0.1, sandbox.Duration(500*time.Millisecond)
	})
	m.fault(sandbox.Fault{Operation: "enroll", Kind: sandbox.AcceptCut, Share: 0.02})
	work, over := context.WithCancel(t.Context())
	defer m.killers.Wait()
	defer over()
	for i, program := range []string{"transaction-poller", "transaction-poller", "callback-receiver"} {
		draw := rand.New(rand.NewPCG(3, uint64(i)))
		m.killers.Go(func() { m.killAgain(work, draw, program, "CALLBACK_LISTEN="+callbacks) })
	}
	consumer := m.start("mandate-consumer", "MANDATE_CALLBACK_URL=http://"+callbacks+"/mandates", "CONCURRENCY=64")
	m.decide(t.Context(), 5*time.Second)
	began := time.Now()
	m.ask(n, 20)
	m.waitOutcomes("mandate.enroll.*.*", n, time.Minute)
	m.payers.Wait()
	t.Logf("%v: all have decided", time.Since(began).Round(100*time.Millisecond))
	for cycle := range 3 {
		bounce(t, m.box, cycle, m.approved())
		wait(t.Context(), time.Second)
	}
	over()
	m.killers.Wait()
	t.Logf("%v: the kills are over", time.Since(began).Round(100*time.Millisecond))
	receiver := m.start("callback-receiver", "CALLBACK_LISTEN="+callbacks)
	pollers := []*process{m.start("transaction-poller"), m.start("transaction-poller")}
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	m.until("all to be published", 3*time.Minute, func() bool { <-tick.C; return m.allPublished() })
	t.Logf("%v: all is published", time.Since(began).Round(100*time.Millisecond))
	m.caughtUp(pollers[0])
	m.untilReady(receiver)
	// who says how far a list is read
	want := map[string]bool{"callback-receiver": false, "mandate-consumer": false, bus.TransactionPoller: true}
	m.until("all to say how they are, and a poller that it has read the list", time.Minute, func() bool {
		said := map[string]bool{}
		answers, err := bus.AskStatus(t.Context(), m.js.Conn())
		for _, p := range answers {
			said[p.Program] = said[p.Program] || p.ReadThrough != nil
		}
		return err == nil && maps.Equal(said, want)
	})
	for _, p := range append(pollers, receiver, consumer) {
		p.stop(time.Minute)
	}
	t.Logf("%v: all have ended", time.Since(began).Round(100*time.Millisecond))
	m.box.Close() // the last callbacks are tried
	m.judge()
	t.Logf("%v: judged", time.Since(began).Round(100*time.Millisecond))
}

// judge compares what was published with what the sandbox knows.
func (m *mandates) judge() {
	m.t.Helper()
	o := m.totals()
	first := wantEachState(m.t, m.box, append(m.events("mandate.application.>"), m.events("mandate.deduction.>")...))
	by := map[string]int{}
	for _, p := range first {
		by[p.by]++
	}
	stored := m.events("mandate.callback.received.*")
	checksums := wantOwnCallbacks(m.t, stored, m.orders)
	errorIf(m.t, o.Callbacks.Delivered > 2*len(stored) || checksums[messages.ChecksumValid] == 0 || checksums[messages.ChecksumInvalid] == 0 ||
		checksums[messages.ChecksumValid]+checksums[messages.ChecksumInvalid] != len(stored),
		"%d callbacks were answered with 200, each record twice, and %d are stored: %v", o.Callbacks.Delivered, len(stored), checksums)
	lost := m.count("mandate.enroll.uncertain.*")
	errorIf(m.t, lost == 0, "no link was lost")
	m.t.Logf("%d kills; %d records in %d events, found by %v; applications %v, deductions %v; "+
		"%d links lost; callbacks %+v, stored %d %v; %d calls for the list",
		m.kills.Load(), o.Enroll.Accepted, len(first), by, o.Enroll.States, o.Enroll.Deductions, m.count("mandate.enroll.uncertain.*"),
		o.Callbacks, len(stored), checksums, o.Calls["transactions"])
}
