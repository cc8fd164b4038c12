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

	"errand/pkg/messages"
)

// More and other faults:
//
//	go test ./internal/e2e -run TestWhateverAConnection -v -wire.seed 7 -wire.requests 5000
var (
	wireSeed     = flag.Uint64("wire.seed", 1, "of the faults that a line has")
	wireRequests = flag.Int("wire.requests", 1200, "enrollments and messages that go over a faulty line")
)

// randomWire is a bubble behind a connection whose faults are drawn.
type randomWire struct {
	*bubble
	w *wire

	mu     sync.Mutex
	draw   *rand.Rand
	hidden map[string]bool // orders that a list did not show although they were enrolled, or soon after
	faults map[string]int  // by name
}

// With report, nothing is done twice, every request has one end, and the end is true.
func TestWhateverAConnectionDoesNothingIsDoneTwice(t *testing.T) {
	inRandomWire(t, func(f *randomWire) {
		for i := range *wireRequests / 2 {
			f.publish("mandate.enroll.requested", enrollment(fmt.Sprint("e", i), "on_unknown", "report"))
			f.publish("mail.send.requested", message(fmt.Sprint("m", i), 1+i%12, "on_unknown", "report"))
		}
		f.run()
		f.judgeEnrollments(*wireRequests/2, "report")
		f.judgeMessages(*wireRequests / 2)
	})
}

// With retry, an enrollment is made again only if the list hid the first one.
func TestWhateverAConnectionDoesARetryTrustsTheListAlone(t *testing.T) {
	inRandomWire(t, func(f *randomWire) {
		for i := range *wireRequests / 4 {
			f.publish("mandate.enroll.requested", enrollment(fmt.Sprint("e", i), "on_unknown", "retry"))
		}
		f.run()
		f.judgeEnrollments(*wireRequests/4, "retry")
	})
}

func inRandomWire(t *testing.T, do func(*randomWire)) {
	t.Helper()
	full(t)
	inWire(t, func(t *testing.T, w *wire, b *bubble) {
		f := &randomWire{bubble: b, w: w, draw: rand.New(rand.NewPCG(*wireSeed, 1)), hidden: map[string]bool{}, faults: map[string]int{}}
		network := w.dial
		w.pick = f.pick
		w.dial = func(ctx context.Context, kind, address string) (net.Conn, error) {
			if f.drawn(0.05) {
				return nil, &net.OpError{Op: "dial", Net: kind, Err: syscall.ECONNREFUSED}
			}
			return network(ctx, kind, address)
		}
		do(f)
	})
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
	json.Unmarshal(body, &asked) // a message has no order number
	f.hides(asked.OrderNumber)
	c.silence()
	time.Sleep(300 * time.Second) // longer than the look-up looks
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

// run has both programs work until all requests have ended.
func (f *randomWire) run() {
	f.t.Helper()
	began, logged := time.Now(), f.keepLogs()
	mandates, mails, transport := f.mandates(), f.mails(), f.w.transport()
	defer transport.CloseIdleConnections()
	mandates.Transport, mails.Transport = transport, transport
	mails.BatchSize, mails.BatchParallel = 5, 2
	stop := f.running(mandates, mails)
	for time.Since(began) < 48*time.Hour && f.queued() > 0 {
		time.Sleep(10 * time.Second)
	}
	stop()
	f.t.Logf("seed %d: %v, %d kinds of faults, calls %v", *wireSeed, time.Since(began), len(f.faults), f.w.calls)
	wantNoneOf(f.t, "the log", logged.String(), append(wirePayers, wireSecrets...)...)
}

// ends returns the one end of each request.
func (f *randomWire) ends(filter string, want int) map[string]event {
	f.t.Helper()
	ends := f.outcomes(filter)
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
