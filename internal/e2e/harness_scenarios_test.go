package e2e

import (
	"cmp"
	"strings"
	"testing"
	"time"

	"errand/internal/sandbox"
)

// Faults of the enroll operation that the scenarios share.
var (
	enrollRefused = sandbox.Fault{Operation: "enroll", Kind: sandbox.Status, Status: 422, Body: []byte(`{"error":{"order_number":["The order number is taken."]}}`)}
	enrollBusy    = sandbox.Fault{Operation: "enroll", Kind: sandbox.Status, Status: 503}
)

// often is a fault that comes so often.
func often(n int, f sandbox.Fault) sandbox.Fault {
	f.Times = n
	return f
}

// unknownFates are the ways in which a call's fate is not known: whether the work was
// done, and what the caller sees.
var unknownFates = []struct{ name, kind string }{
	{"done_and_cut", sandbox.AcceptCut}, {"cut", sandbox.Cut}, {"status_500", sandbox.Status},
	{"done_and_unreadable", sandbox.Garbage}, {"done_and_empty", sandbox.AcceptEmpty},
}

// scenario is what the upstream does with requests; the history of them is on file.
type scenario struct {
	name     string // enroll.… or mail.…, and that of the file
	requests []any
	faults   []sandbox.Fault
	batch    int           // recipients a batch; 1000 when left out
	until    string        // ends with the first event under this filter; "" waits for all of lasts
	lasts    time.Duration // at most; ten minutes when left out
	before   func(b *bubble)
	after    func(b *bubble)
}

func (s *scenario) play(t *testing.T, b *bubble) {
	for _, f := range s.faults {
		b.fault(f)
	}
	if s.before != nil {
		s.before(b)
	}
	subject := "mail.send.requested"
	if strings.HasPrefix(s.name, "enroll.") {
		subject = "mandate.enroll.requested"
	}
	for _, r := range s.requests {
		b.publish(subject, r)
	}
	b.play(s)
	if s.after != nil {
		time.Sleep(time.Until(epoch.Add(time.Minute))) // a run ends some seconds after its event
		s.after(b)
	}
	if s.until != "" && b.count(s.until) == 0 {
		t.Errorf("nothing under %s\n%s", s.until, b.logs)
	}
}

// play runs the scenario's program. Its quick waits are too short to show in whole
// seconds, and it has one call of a request on its way at a time.
func (b *bubble) play(s *scenario) {
	lasts, until := cmp.Or(s.lasts, 10*time.Minute), func() bool { return s.until != "" && b.count(s.until) > 0 }
	if strings.HasPrefix(s.name, "enroll.") {
		p := b.mandates()
		p.RetryFirst = time.Millisecond
		b.run(p, lasts, until)
		return
	}
	p := b.mails()
	p.RetryFirst, p.BatchParallel = time.Millisecond, 1
	if s.batch > 0 {
		p.BatchSize = s.batch
	}
	b.run(p, lasts, until)
}

// epoch is when every bubble begins.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// Faults of the send operation that the scenarios share.
var (
	sendRefused = sandbox.Fault{Operation: "send", Kind: sandbox.Status, Status: 422, Body: []byte(`{"error":true,"status_code":422,"message":"The subject is not allowed.","data":{}}`)}
	sendBusy    = sandbox.Fault{Operation: "send", Kind: sandbox.Status, Status: 503}
	sendHeld    = sandbox.Fault{Operation: "send", Kind: sandbox.Status, Status: 402}
)
