//go:build unix

package e2e

import (
	"cmp"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"errand/internal/app"
	"errand/internal/sandbox"
)

// A request's outcome is what the sandbox knows, whatever happens to its call on the
// wire: told as done only if it was, as not done only if it was not, else uncertain.
func TestEveryFaultOfALineIsToldAsWhatItIs(t *testing.T) {
	for _, f := range lineFaults() {
		for _, c := range []struct {
			operation, onUnknown string
		}{{"enroll", "report"}, {"enroll", "retry"}, {"send", "report"}} {
			t.Run(fmt.Sprintf("%s, %s, %s", f.name, c.operation, c.onUnknown), func(t *testing.T) {
				inWire(t, func(t *testing.T, w *wire, b *bubble) {
					w.pick = once(c.operation, f.fault)
					e := w.run(b, c.operation, c.onUnknown)
					state, reason, done := f.expect(c.operation, c.onUnknown)
					if string(e.state()) != state || e.reason() != reason {
						t.Errorf("told %s, %s, want %s, %s: %s", e.state(), e.reason(), state, reason, e.Raw)
					}
					if got := w.did(c.operation); got != done {
						t.Errorf("the sandbox did it %d times, want %d: %s", got, done, e.Raw)
					}
					if evidence, _ := e.Body["evidence"].([]any); len(evidence) > 0 != (reason == "link_lost") {
						t.Errorf("evidence: %s", e.Raw)
					}
					if again := c.onUnknown == "retry" && !f.done && strings.HasSuffix(f.reason, "answer"); again != (e.Body["after_unknown"] == true) {
						t.Errorf("after_unknown: %s", e.Raw)
					}
				})
			})
		}
	}
}

// expect is the event that tells of a fault, its reason, and how often the work is
// done in the end.
func (f lineFault) expect(operation, onUnknown string) (state, reason string, done int) {
	well := map[string]string{"enroll": "succeeded", "send": "accepted"}[operation]
	switch {
	case f.reason == "refused":
		return "failed", "refused", 0
	case f.reason == "" || f.reason == "busy" || onUnknown == "retry" && !f.done:
		return well, "", 1
	case operation == "enroll" && f.done:
		return "uncertain", "link_lost", 1
	case f.done:
		return "uncertain", f.reason, 1
	}
	return "uncertain", f.reason, 0
}

// The look-up that tells what became of an enrollment meets the same faults, and the
// evidence is right all the same.
func TestEveryFaultOfTheLookUpIsOvercome(t *testing.T) {
	for _, f := range lineFaults() {
		for done, onUnknown := range map[bool]string{true: "report", false: "retry"} {
			t.Run(fmt.Sprintf("%s, enrolled: %t", f.name, done), func(t *testing.T) {
				inWire(t, func(t *testing.T, w *wire, b *bubble) {
					calls, lists := once("enroll", func(c *call) bool {
						if done {
							c.work()
						}
						return c.reset()
					}), times(6, "transactions", f.fault) // all the tries of a read, and one more
					w.pick = func(operation string) fault {
						if f := calls(operation); f != nil {
							return f
						}
						return lists(operation)
					}
					e := w.run(b, "enroll", onUnknown)
					state, reason, enrolled := lineFault{done: done, reason: "no_answer"}.expect("enroll", onUnknown)
					if string(e.state()) != state || e.reason() != reason {
						t.Errorf("told %s, %s, want %s, %s: %s", e.state(), e.reason(), state, reason, e.Raw)
					}
					if got := w.did("enroll"); got != enrolled {
						t.Errorf("enrolled %d times, want %d", got, enrolled)
					}
				})
			})
		}
	}
}

// inWire runs f in virtual time with a wire in place of the upstream.
func inWire(t *testing.T, f func(*testing.T, *wire, *bubble)) {
	t.Helper()
	inBubble(t, func(t *testing.T, b *bubble) {
		l := &pipe{make(chan net.Conn), make(chan struct{})}
		w := stringWire(t, b.box, l)
		w.dial = l.dial
		f(t, w, b)
		w.wantOnly(t, "127.0.0.1:8085")
		b.wantSecretsKept()
	})
}

// wantSecretsKept holds everything that was told and logged against the secrets.
func (b *bubble) wantSecretsKept() {
	b.t.Helper()
	for _, e := range append(append(b.told("mandate.>"), b.told("mail.>")...), b.told("dead.>")...) {
		wantKept(b.t, e.Subject, e.Raw, wireSecrets...)
	}
	wantKept(b.t, "the log", b.logs.String(), append(wirePayers, wireSecrets...)...)
}

// run has a program deal with one request r1 and gives its one final event.
func (w *wire) run(b *bubble, operation, onUnknown string) event {
	b.t.Helper()
	transport := w.transport()
	defer transport.CloseIdleConnections()
	filter := "mandate.enroll.*.r1"
	var program app.Program
	if operation == "enroll" {
		mandates := b.mandates()
		mandates.APIURL = cmp.Or(w.address, mandates.APIURL)
		mandates.Transport, program = transport, mandates
		b.publish("mandate.enroll.requested", enrollment("r1", "on_unknown", onUnknown))
	} else {
		mails := b.mails()
		mails.APIURL = cmp.Or(w.address, mails.APIURL)
		mails.Transport, program = transport, mails
		filter = "mail.send.*.r1"
		b.publish("mail.send.requested", message("r1", 3, "on_unknown", onUnknown))
	}
	ended := func() bool {
		for _, e := range b.told(filter) {
			if e.final() {
				return true
			}
		}
		return false
	}
	b.run(program, 30*time.Minute, ended)
	var ends []event
	for _, e := range b.told(filter) {
		if e.final() {
			ends = append(ends, e)
		}
	}
	if len(ends) != 1 {
		b.t.Fatalf("%d final events, want one: %v\n%s", len(ends), ends, b.logs)
	}
	return ends[0]
}

// did is how often the sandbox did the request r1; all its recipients as often.
func (w *wire) did(operation string) int {
	if operation == "enroll" {
		return w.box.Enrolled("order-r1")
	}
	return int(w.box.Oracle(sandbox.Query{}).Mail.Recipients) / 3
}
