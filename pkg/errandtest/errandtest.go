// Package errandtest gives the tests of a service a whole errand: NATS, the programs, and a stand-in of both services that fails on
// demand and knows what it really did. Everything runs in memory, without ports unless you ask for one, and is gone when the test ends.
//
//	w := errandtest.New(t)
//	w.Mandate.CutAfterAccept()                        // the next enrollment is made, and its answer is lost
//	receipt, err := w.Client.Publish(ctx, request)    // or your service does it, by w.Connect or w.URL
//	w.WantOutcome(receipt, messages.Uncertain)
//	w.Mandate.WantOnce("DD001")                       // not twice
//
// With InBubble days pass in a moment. Waits and timeouts are short in New, and as in production in InBubble.
package errandtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"errand/internal/bus"
	"errand/internal/oncall/inspect"
	"errand/internal/programs"
	"errand/internal/sandbox"
	"errand/internal/sandbox/devkit"
	"errand/internal/sandbox/devkit/devtest"
	"errand/internal/wire"
	"errand/internal/wire/mailbox"
	"errand/pkg/errand"
	"errand/pkg/messages"
)

// World is an installation of errand, and both services.
type World struct {
	Client  *errand.Client
	Mandate Mandate // the e-mandate service
	Mail    Mail    // the email service

	t      testing.TB
	nats   *devkit.NATS
	listen func() (url string, err error)
	nc     *nats.Conn
	js     jetstream.JetStream
	box    *sandbox.Sandbox
	bubble bool
	log    logs

	lanes    []string
	suppress bool
}

// Main is the TestMain of packages that use InBubble: the server's clock must start outside of every bubble.
//
//	func TestMain(m *testing.M) { errandtest.Main(m) }
func Main(m *testing.M) { devtest.Main(m) }

// Option is a setting of the programs.
type Option func(*World)

// SuppressBounced has addresses left out of messages that mail bounced from in the last 30 days: see Bounce and WantSuppressed.
func SuppressBounced(w *World) { w.suppress = true }

// Lanes are the lanes of LANES.
func Lanes(names ...string) Option { return func(w *World) { w.lanes = append(w.lanes, names...) } }

// New starts a world that ends with the test. Any number may run in parallel.
func New(t testing.TB, with ...Option) *World {
	t.Helper()
	return start(t, false, with)
}

// InBubble runs f with a world in a bubble of testing/synctest, in virtual time. The package needs Main.
func InBubble(t *testing.T, f func(t *testing.T, w *World), with ...Option) {
	t.Helper()
	defer func() { runtime.GC(); runtime.GC() }() // empties the pool in which nats.go keeps timers of the bubble
	synctest.Test(t, func(t *testing.T) { f(t, start(t, true, with)) })
}

func start(t testing.TB, bubble bool, with []Option) *World {
	t.Helper()
	w := &World{t: t, bubble: bubble}
	for _, option := range with {
		option(w)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var err error
	w.nats, err = devkit.InProcess(t.TempDir())
	must(err)
	t.Cleanup(w.nats.Close)
	w.listen = sync.OnceValues(w.nats.Listen)
	w.nc = w.Connect()
	w.js, err = jetstream.New(w.nc)
	must(err)
	must(devtest.Provision(t.Context(), w.nc, w.lanes...))
	w.Client = errand.New(w.js)
	settings := sandbox.DefaultSettings()
	if !bubble {
		settings.LogDelay = sandbox.Duration(20 * time.Millisecond)
	}
	w.box = sandbox.New(sandbox.Options{PublicURL: upstream, Settings: &settings, Seed: 1})
	w.Mandate.Faults, w.Mail.Faults = Faults{w, "enroll", 1, ""}, Faults{w, "send", 1, ""}

	line := &pipe{conns: make(chan net.Conn), done: make(chan struct{})}
	web := &http.Server{Handler: w.box, ReadHeaderTimeout: 10 * time.Second}
	transport := &http.Transport{DialContext: line.dial, MaxIdleConnsPerHost: 64, IdleConnTimeout: 4 * time.Second}
	var serving, running sync.WaitGroup
	serving.Go(func() { _ = web.Serve(line) })
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	t.Cleanup(func() {
		stop()
		w.nats.Stop() // else the programs wait for what they asked of it
		running.Wait()
		transport.CloseIdleConnections()
		w.box.Close()
		_ = web.Close()
		serving.Wait()
	})
	for name, program := range w.programs(transport) {
		running.Go(func() {
			if err := program.Run(ctx); err != nil && ctx.Err() == nil {
				t.Errorf("errandtest: %s ended: %v\n%s", name, err, w.log.String())
			}
		})
	}
	return w
}

// upstream is where the programs find both services.
const upstream = "http://127.0.0.1:8085"

func (w *World) programs(transport http.RoundTripper) map[string]programs.Program {
	log := zerolog.New(&w.log)
	common := programs.Common{Base: programs.Base{NATS: bus.Connection{URL: "nats://127.0.0.1:4222", Dialer: dialer{w.nats}}, AdminAddr: "off",
		ShutdownGrace: time.Millisecond, Logger: &log}, Transport: transport,
		UpstreamTimeout: 2 * time.Second, RetryFirst: 20 * time.Millisecond, RetryMax: 500 * time.Millisecond, RetryTries: 3}
	settle, poll, list := time.Second, 300*time.Millisecond, time.Second
	resolve := []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 15 * time.Second,
		30 * time.Second, 45 * time.Second, time.Minute} // less apart than patience
	if w.bubble {
		resolve = nil                       // as in production
		common.IdleEvery = 10 * time.Minute // else an idle day takes a minute
		common.UpstreamTimeout, common.RetryFirst, common.RetryMax, common.RetryTries = 30*time.Second, 200*time.Millisecond, 10*time.Second, 5
		settle, poll, list = time.Minute, time.Minute, time.Minute
	}
	requests := programs.Requests{Concurrency: 8, GiveUpAfter: 24 * time.Hour}
	mandates := programs.MandateAPI{APIURL: upstream, APIVersion: "v3", APIToken: "token", PortalKey: "portal", Timezone: "Asia/Kuala_Lumpur"}
	mail, suppress := programs.MailAPI{APIURL: upstream, APIKey: "key"}, programs.Period{}
	if w.suppress {
		suppress.Duration = 30 * 24 * time.Hour
	}
	return map[string]programs.Program{
		"mandate-consumer": &programs.MandateConsumer{Common: common, Requests: requests, MandateAPI: mandates, ListSettle: settle,
			ResolveAges: resolve},
		"transaction-poller": &programs.TransactionPoller{Common: common, MandateAPI: mandates, Interval: list, FullInterval: 24 * time.Hour},
		"mail-consumer": &programs.MailConsumer{Common: common, Requests: requests, MailAPI: mail, BatchSize: messages.MaxBatch,
			BatchParallel: 4, SuppressBounced: suppress},
		"log-poller": &programs.LogPoller{Common: common, MailAPI: mail, Interval: poll, Limit: 1000, Overlap: 15 * time.Minute,
			ReportAfter: 72 * time.Hour},
	}
}

// Connect opens a connection to NATS for the service under test. It is closed when the test ends.
func (w *World) Connect() *nats.Conn {
	w.t.Helper()
	nc, err := w.nats.Connect()
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(nc.Close)
	return nc
}

// URL is where a service that connects by itself reaches NATS, without a user: a free port of 127.0.0.1, opened by the first call.
// There are no ports in a bubble.
func (w *World) URL() string {
	w.t.Helper()
	if w.bubble {
		w.t.Fatal("errandtest: URL needs New; in a bubble use Connect")
	}
	url, err := w.listen()
	if err != nil {
		w.t.Fatal(err)
	}
	return url
}

// patience is how long is waited for what is wanted, in a bubble for longer; the context ends then, and not before t.Cleanup.
func (w *World) patience(inBubble time.Duration) (context.Context, context.CancelFunc, time.Duration) {
	d := 20 * time.Second
	if w.bubble {
		d = inBubble
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.t.Context()), d)
	return ctx, cancel, d
}

// WantOutcome waits until a request ends in this state, such as messages.Accepted, and returns its outcome: for 20 seconds, or 25
// hours of a bubble. Another outcome ends the test, with the request's story, but for Uncertain where Resolved is wanted. That comes
// to mail from the log, to an enrollment seconds after its payer decided, or minutes of a bubble (see Approve), and in a bubble to
// one that was never made after a day, if the list shows another enrollment: an empty one proves nothing. States on the way, such as
// messages.Deferred, are for WantEvent.
func (w *World) WantOutcome(r errand.Receipt, state messages.State) errand.Outcome {
	w.t.Helper()
	if !state.Final(r.Operation) {
		w.t.Fatalf("errandtest: no %s ends as %q: WantEvent waits for %s", r.Operation, state, r.Operation.Subject(state, r.RequestID))
	}
	ctx, cancel, _ := w.patience(25 * time.Hour) // by then a request ends by itself
	defer cancel()
	for e, err := range w.Client.Follow(ctx, r) {
		switch {
		case err != nil:
			w.t.Fatalf("%s is not %s: %v\n%s", r.RequestID, state, err, w.Story(r.RequestID))
		case e.Operation == r.Operation && e.State == state:
			return e.Outcome()
		case e.Final() && (e.State != messages.Uncertain || state != messages.Resolved):
			w.t.Fatalf("%s is %s, want %s\n%s", r.RequestID, e.State, state, w.Story(r.RequestID))
		}
	}
	return nil
}

// WantEvent waits for an event of that subject, such as mail.delivery.bounced.send-invoice-17, and returns the body of the last, for
// messages.DecodeEvent. It waits for 20 seconds, or an hour of a bubble: Advance first to what comes later.
func (w *World) WantEvent(subject string) []byte {
	w.t.Helper()
	ctx, cancel, patience := w.patience(time.Hour)
	defer cancel()
	stream, err := w.js.StreamNameBySubject(ctx, subject)
	for wait := 20 * time.Millisecond; err == nil; wait += min(wait, patience/1000) / 4 { // looks less often as time passes
		var m bus.Message
		var there bool
		if m, there, err = bus.Last(ctx, w.nc, stream, subject); there {
			return m.Data
		}
		select {
		case <-ctx.Done():
			err = fmt.Errorf("none came in %v", patience)
		case <-time.After(wait):
		}
	}
	w.t.Fatalf("no event %s: %v\n%s", subject, err, w.Story(subject[strings.LastIndexByte(subject, '.')+1:]))
	return nil
}

// Story is all that is known of a request, as `errand show` has it, and what the programs logged last.
func (w *World) Story(id string) string {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.t.Context()), 5*time.Second)
	defer cancel()
	var b bytes.Buffer
	stories, err := inspect.Reader{Conn: w.nc, JS: w.js}.Stories(ctx, id, time.Now())
	if err != nil {
		fmt.Fprintln(&b, err)
	}
	for _, s := range stories {
		fmt.Fprintf(&b, "%s %s: %s\n", s.Operation, s.RequestID, s.Says)
		for _, list := range [][]inspect.Event{s.Events, s.Delivered, s.Mandate} {
			for _, e := range list {
				fmt.Fprintf(&b, "  %s %s %s\n", e.Time.Format(time.TimeOnly), e.Subject, e.Message.Data)
			}
		}
	}
	return b.String() + w.log.String()
}

// Approve has the payer of an order number approve; mandate.application.approved follows.
func (w *World) Approve(order string) { w.decide(order, sandbox.Approve) }

// Decline has the payer decline; mandate.application.failed follows.
func (w *World) Decline(order string) { w.decide(order, sandbox.Decline) }

func (w *World) decide(order, decision string) {
	w.t.Helper()
	if err := w.box.Decide(order, decision); err != nil {
		w.t.Fatal(err)
	}
}

// Bounce has mail to an address answered with this code from now on: 550 bounces, 451 is delivered later.
func (w *World) Bounce(address string, code int) {
	w.t.Helper()
	bare, err := messages.ParseRecipient(address)
	if err != nil {
		w.t.Fatalf("errandtest: %q %v", address, err)
	}
	w.box.Reply(bare, code)
}

// mailbox is the same for every spelling of an address, also one with a display name.
func (w *World) mailbox(address string) string {
	w.t.Helper()
	folded, ok := mailbox.Fold(address)
	if !ok {
		w.t.Fatalf("errandtest: %q is not an email address", address)
	}
	return folded
}

// WantSuppressed waits until mail to an address has bounced and the programs know it: what is published then leaves it out.
func (w *World) WantSuppressed(address string) {
	w.t.Helper()
	ctx, cancel, _ := w.patience(time.Hour)
	defer cancel()
	secret, err := bus.RecipientSecret(ctx, w.nc)
	if err != nil {
		w.t.Fatal(err)
	}
	w.WantEvent("suppression.bounced." + secret.KeyOf(w.mailbox(address)).String())
	<-time.After(4 * time.Second) // they look every two
}

// Advance lets time pass, in a bubble alone.
func (w *World) Advance(d time.Duration) {
	w.t.Helper()
	if !w.bubble {
		w.t.Fatal("errandtest: Advance needs InBubble")
	}
	<-time.After(d)
	synctest.Wait()
}

// Faults are what goes wrong at a service: with the next call that changes something, or with more of them, see Always. Each waits for
// a call of its own, in the order they were set.
type Faults struct {
	w         *World
	operation string
	times     int
	match     string
}

// Always makes faults stay until they are lifted.
func (f Faults) Always() Faults { f.times = 0; return f }

// For narrows faults to requests that contain a text, such as an order number or an address, or a number, such as an amount.
func (f Faults) For(text string) Faults { f.match = text; return f }

// CutAfterAccept does what is asked for, and cuts the connection without an answer.
func (f Faults) CutAfterAccept() { f.add(sandbox.Fault{Kind: sandbox.AcceptCut}) }

// Cut cuts the connection, and nothing is done. The programs cannot tell it from CutAfterAccept.
func (f Faults) Cut() { f.add(sandbox.Fault{Kind: sandbox.Cut}) }

// Garble does what is asked for, and its answer cannot be read.
func (f Faults) Garble() { f.add(sandbox.Fault{Kind: sandbox.Garbage}) }

// Answer answers with an HTTP status, and nothing is done: 422 refuses, 503 is busy, 401 rejects the credentials.
func (f Faults) Answer(status int) { f.add(sandbox.Fault{Kind: sandbox.Status, Status: status}) }

// Slow answers after a while.
func (f Faults) Slow(d time.Duration) {
	f.add(sandbox.Fault{Kind: sandbox.DelayAnswer, Delay: sandbox.Duration(d)})
}

// Lift ends all faults of this service.
func (f Faults) Lift() { f.w.box.ClearFaults(f.operation) }

func (f Faults) add(fault sandbox.Fault) {
	f.w.t.Helper()
	fault.Operation, fault.Times, fault.Match = f.operation, f.times, f.match
	if err := f.w.box.AddFault(fault); err != nil {
		f.w.t.Fatal(err)
	}
}

// Mandate is the e-mandate service.
type Mandate struct{ Faults }

// WantOnce fails the test unless an order number, whatever its case and spaces, was enrolled exactly once.
func (m Mandate) WantOnce(order string) { m.want(order, 1) }

// WantNone fails the test if an order number was enrolled.
func (m Mandate) WantNone(order string) { m.want(order, 0) }

func (m Mandate) want(order string, times int) {
	m.w.t.Helper()
	got := 0
	for enrolled, n := range m.w.box.Oracle(sandbox.Query{}).Enroll.ByOrder {
		if wire.SameOrder(enrolled, order) {
			got += n
		}
	}
	if got != times {
		m.w.t.Errorf("%s was enrolled %d times, want %d\n%s", order, got, times, m.w.log.String())
	}
}

// Mail is the email service.
type Mail struct{ Faults }

// WantOnce fails the test unless an address, in whatever spelling, got mail, and no subject twice.
func (m Mail) WantOnce(address string) { m.want(address, 1) }

// WantNone fails the test if an address got mail.
func (m Mail) WantNone(address string) { m.want(address, 0) }

func (m Mail) want(address string, each int) {
	m.w.t.Helper()
	wanted, got := m.w.mailbox(address), map[string]int{} // by subject
	for _, r := range m.w.box.Oracle(sandbox.Query{}).Mail.ByRecipient {
		if folded, _ := mailbox.Fold(r.Recipient); folded == wanted {
			got[r.Subject] += r.Count
		}
	}
	for subject, n := range got {
		if n > each {
			m.w.t.Errorf("%s got %q %d times, want %d\n%s", address, subject, n, each, m.w.log.String())
		}
	}
	if len(got) < each {
		m.w.t.Errorf("%s got no mail\n%s", address, m.w.log.String())
	}
}

// dialer reaches the server without a network.
type dialer struct{ n *devkit.NATS }

func (d dialer) Dial(string, string) (net.Conn, error) { return d.n.InProcessConn() }

// pipe is a listener without a network.
type pipe struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (p *pipe) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipe) Close() error {
	p.once.Do(func() { close(p.done) })
	return nil
}

func (p *pipe) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

func (p *pipe) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.conns <- server:
		return client, nil
	case <-p.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, errors.Join(ctx.Err(), client.Close(), server.Close())
	}
}

// logs keeps the last of what the programs log.
type logs struct {
	mu   sync.Mutex
	last [][]byte
}

func (l *logs) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last = append(l.last, bytes.Clone(line)); len(l.last) > 40 {
		l.last = l.last[1:]
	}
	return len(line), nil
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return "the programs' last lines:\n" + string(bytes.Join(l.last, nil))
}
