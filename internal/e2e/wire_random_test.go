package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"errand/internal/bus"
	"errand/internal/programs"
	"errand/internal/sandbox"
	"errand/internal/sandbox/devkit/devtest"
	"errand/pkg/clients"
	"errand/pkg/messages"
)

// More and other faults:
//
//	go test ./internal/e2e -run TestWhateverALineDoes -v -timeout 20m -wire.seed 7 -wire.requests 5000
var (
	wireSeed     = flag.Uint64("wire.seed", 1, "of the faults that a line has")
	wireRequests = flag.Int("wire.requests", 240, "enrollments and messages that go over a faulty line")
)

// randomWire is an installation in real time behind a connection whose faults are drawn.
type randomWire struct {
	world
	nats string
	w    *wire
	log  bytes.Buffer // of both programs, complete; zerolog writes it line by line

	mu     sync.Mutex
	draw   *rand.Rand
	hidden map[string]bool // orders that a list did not show although they were enrolled, or soon after
	faults map[string]int  // by name
	hit    int             // calls
}

// With report, nothing is done twice, every request has one end, and the end is true.
func TestWhateverAConnectionDoesNothingIsDoneTwice(t *testing.T) {
	f := newRandomWire(t)
	for i := range *wireRequests / 2 {
		f.publish("mandate.enroll.requested", enrollment(fmt.Sprint("e", i), "on_unknown", "report"))
		f.publish("mail.send.requested", message(fmt.Sprint("m", i), 1+i%12, "on_unknown", "report"))
	}
	f.run(*wireRequests/2, *wireRequests/2)
	f.judgeEnrollments(*wireRequests/2, "report")
	f.judgeMessages(*wireRequests / 2)
}

// With retry, an enrollment is made again only if the list hid the first one.
func TestWhateverAConnectionDoesARetryTrustsTheListAlone(t *testing.T) {
	f := newRandomWire(t)
	for i := range *wireRequests / 4 {
		f.publish("mandate.enroll.requested", enrollment(fmt.Sprint("e", i), "on_unknown", "retry"))
	}
	f.run(*wireRequests/4, 0)
	f.judgeEnrollments(*wireRequests/4, "retry")
}

func newRandomWire(t *testing.T) *randomWire {
	t.Helper()
	parallel(t)
	n, nc := devtest.Provisioned(t)
	js, err := jetstream.New(nc)
	must(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	f := &randomWire{world: world{t: t, js: js, producer: js, box: sandbox.New(sandbox.Options{MandateToken: "token-for-tests",
		MailKey: "key-for-tests"})},
		draw: rand.New(rand.NewPCG(*wireSeed, 1)), hidden: map[string]bool{}, faults: map[string]int{}}
	f.lastOutput = f.log.String
	t.Cleanup(f.box.Close)
	f.w = newWire(t, f.box, l)
	f.w.second, f.w.address, f.nats = 10*time.Millisecond, "http://"+l.Addr().String(), n.URL
	f.w.pick = f.pick
	network := clients.NewTransport(64, nil).DialContext
	f.w.dial = func(ctx context.Context, kind, address string) (net.Conn, error) {
		if f.drawn(0.05) {
			return nil, &net.OpError{Op: "dial", Net: kind, Err: syscall.ECONNREFUSED}
		}
		return network(ctx, kind, address)
	}
	return f
}

func (f *randomWire) drawn(share float64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.draw.Float64() < share
}

// pick draws a fault for four calls of ten.
func (f *randomWire) pick(operation string) fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.draw.Float64() > 0.4 {
		return nil
	}
	all := append(lineFaults(), lineFault{name: "works when nobody waits any longer", fault: f.late},
		lineFault{name: "closed after the answer", fault: func(c *call) bool { return c.say(c.work().with("")) && false }})
	if operation == "transactions" {
		all = append(all, lineFault{name: "hides what is listed", fault: f.hide}, lineFault{name: "hides what is listed", fault: f.hide})
	}
	picked := all[f.draw.IntN(len(all))]
	f.faults[picked.name]++
	f.hit++
	return picked.fault
}

// late does the work after the caller gave up.
func (f *randomWire) late(c *call) bool {
	body, err := io.ReadAll(c.Body)
	if err != nil {
		return false
	}
	var asked struct {
		OrderNumber string `json:"order_number"`
	}
	json.Unmarshal(body, &asked) // a message has none
	f.hides(asked.OrderNumber)
	c.silence()
	c.sleep(300 * time.Second) // longer than the look-up looks
	c.Body = io.NopCloser(bytes.NewReader(body))
	c.work()
	return false
}

// hide shows an empty list.
func (f *randomWire) hide(c *call) bool {
	f.hides(c.URL.Query().Get("order_number"))
	return c.say(answer{http.StatusOK, "application/json",
		`{"data":[],"links":{"next":null},"meta":{"current_page":1,"last_page":1,"total":0}}`}.with(""))
}

func (f *randomWire) hides(order string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hidden[order] = true
}

// run has both programs work until so many requests have ended.
func (f *randomWire) run(enrollments, letters int) {
	f.t.Helper()
	began := time.Now()
	transport := f.w.transport()
	defer transport.CloseIdleConnections()
	log := zerolog.New(zerolog.SyncWriter(&f.log)).Level(zerolog.DebugLevel)
	common := programs.Common{Base: programs.Base{NATS: bus.Connection{URL: f.nats}, AdminAddr: "off", ShutdownGrace: 20 * time.Second,
		Logger: &log}, Transport: transport,
		UpstreamTimeout: 500 * time.Millisecond, RetryFirst: 5 * time.Millisecond, RetryMax: 50 * time.Millisecond, RetryTries: 4}
	requests := programs.Requests{Concurrency: 48, GiveUpAfter: 24 * time.Hour}
	ctx, stop := context.WithCancel(f.t.Context())
	var running sync.WaitGroup
	for _, p := range []programs.Program{
		&programs.MandateConsumer{Common: common, Requests: requests, MandateAPI: programs.MandateAPI{APIURL: f.w.address, APIVersion: "v3",
			APIToken: "token-for-tests", PortalKey: "portal-for-tests", Timezone: "Asia/Kuala_Lumpur"}},
		&programs.MailConsumer{Common: common, Requests: requests, MailAPI: programs.MailAPI{APIURL: f.w.address, APIKey: "key-for-tests"},
			BatchSize: 5, BatchParallel: 2},
	} {
		running.Go(func() {
			err := p.Run(ctx)
			errorIf(f.t, err != nil, "a program ended: %v", err)
		})
	}
	tick := time.NewTicker(100 * time.Millisecond)
	for end := time.Now().Add(2*time.Minute + time.Duration(enrollments+letters)*time.Second); time.Now().Before(end); <-tick.C {
		if f.haveOutcomes("mandate.enroll.*.*", enrollments)() && f.haveOutcomes("mail.send.*.*", letters)() {
			break
		}
	}
	tick.Stop()
	took := time.Since(began)
	stop()
	running.Wait()
	o := f.totals()
	f.t.Logf("seed %d: %d requests in %v, %d faults of %d kinds, calls %v, oracle %v", *wireSeed, enrollments+letters,
		took.Round(time.Millisecond),
		f.hit, len(f.faults), f.w.calls, o.Calls)
	f.w.wantOnly(f.t, strings.TrimPrefix(f.w.address, "http://"))
	wantNoneOf(f.t, "the log", f.log.String(), append(wirePayers, wireSecrets...)...)
}

// ends returns the one end of each request, and counts them.
func (f *randomWire) ends(filter string, want int) map[string]event {
	f.t.Helper()
	ends := map[string]event{}
	for _, e := range f.events(filter) {
		wantNoneOf(f.t, e.Subject, e.Raw, wireSecrets...)
		if !e.final() {
			continue
		}
		before, twice := ends[e.id()]
		errorIf(f.t, twice, "%s ended twice: %s and %s", e.id(), before.Raw, e.Raw)
		ends[e.id()] = e
	}
	errorIf(f.t, len(ends) != want, "%s: %d requests ended, want %d", filter, len(ends), want)
	f.t.Logf("%s: %v", filter, tally(ends))
	return ends
}

func (f *randomWire) judgeEnrollments(want int, onUnknown string) {
	f.t.Helper()
	for id, e := range f.ends("mandate.enroll.*.*", want) {
		order := "order-" + id
		n, hidden := f.box.Enrolled(order), f.hidden[order]
		errorIf(f.t, onUnknown == "report" && e.Body["after_unknown"] == true,
			"%s was called again after a call of unknown fate: %s", order, e.Raw)
		lost := e.reason() == string(messages.ReasonLinkLost)
		switch {
		case n > 1 && !(hidden && onUnknown == "retry"):
			f.t.Errorf("%s is enrolled %d times: %s", order, n, e.Raw)
		case e.state() == messages.Succeeded && n > 0, e.state() == messages.Failed && (n == 0 || hidden && onUnknown == "retry"):
		case e.state() == messages.Uncertain && lost && n > 0, e.state() == messages.Uncertain && !lost && (n == 0 || hidden):
		default:
			f.t.Errorf("%s is reported %s, and enrolled %d times: %s", order, e.state(), n, e.Raw)
		}
	}
}

func (f *randomWire) judgeMessages(want int) {
	served := map[string]int{}
	for _, r := range f.oracle().Mail.ByRecipient {
		errorIf(f.t, r.Count > 1, "%s got the same mail %d times", r.Recipient, r.Count)
		served[strings.TrimPrefix(r.Subject, "story ")]++
	}
	for id, e := range f.ends("mail.send.*.*", want) {
		outcome := decode[messages.SendOutcome](f.t, e)
		all, got := outcome.Recipients, served[id]
		agrees := map[messages.State]bool{
			messages.Accepted: got == all && outcome.Accepted == all, messages.Failed: got == 0 && outcome.Accepted == 0,
			messages.Partial: got == outcome.Accepted && got < all, messages.Uncertain: got >= outcome.Accepted,
		}
		errorIf(f.t, !agrees[e.state()], "%s is reported %s, and %d recipients got it: %s", id, e.state(), got, e.Raw)
	}
}

// What an upstream says on a connection on which nobody asks names payers: a second answer, the rest of one. Of that
// nothing reaches what a program prints, which every installation looks at in the end.
func TestAnAnswerNobodyAskedForIsNotPrinted(t *testing.T) {
	const requests = 20
	in := install(t, "CONCURRENCY=2")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	w := newWire(t, in.box, l)
	w.pick = func(string) fault {
		return func(c *call) bool {
			a := c.work()
			a.body = a.body[:len(a.body)-1] + `,"payer_name":"Test Payer"}`
			return c.say(a.with("") + a.with(""))
		}
	}
	in.request(enrollOp, "r", requests)
	p := in.start("mandate-consumer", "MANDATE_API_URL=http://"+l.Addr().String())
	in.waitOutcomes("mandate.enroll.*.*", requests, time.Minute)
	p.stop(time.Minute)
	for id, history := range in.histories("mandate.enroll.*.*") {
		e, err := finalEvent(history)
		errorIf(t, err != nil || e.state() != messages.Succeeded && e.reason() != "link_lost", "%s: %v %s", id, err, e.Raw)
	}
}
