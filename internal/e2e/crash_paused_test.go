package e2e

import (
	"testing"
	"time"

	"errand/internal/sandbox"
	"errand/pkg/messages"
)

// A worker is paused at a step until another one has taken its request over and ended it. When it goes on it makes no
// call and publishes nothing, and the next request finds it as good as before.
func TestAStoppedWorkerIsFencedWhenItResumes(t *testing.T) {
	stop := func(places ...string) (all []string) {
		for _, at := range places {
			all = append(all, "stop at "+at)
		}
		return all
	}
	late := sandbox.Fault{Operation: "send", Kind: sandbox.DelayAnswer, Delay: sandbox.Duration(time.Hour), Times: 1}
	var rows table

	enroll := func(onUnknown string, want outcome, places ...string) {
		rows.enroll(enrollment("r1", "on_unknown", onUnknown), good, want, stop(places...)...)
	}
	enroll("report", enrolled(1), "taken", "before store started", "after store succeeded", "before ack")
	enroll("report", interrupted(0, 0), "after store started", "before call")
	enroll("report", linkLost(1), "answer", "before store succeeded")
	enroll("retry", again(enrolled(1)), "after store started", "before call")
	slow, busyOnce := late, busyTwice
	slow.Operation, busyOnce.Times = "enroll", 1
	rows.enroll(reporting, slow, linkLost(1), stop(inCall)...)
	rows.enroll(reporting, busyOnce, interrupted(1, 0), stop("before call@2")...)

	send := func(f sandbox.Fault, onUnknown string, want outcome, places ...string) {
		rows = append(rows, sending(message("r1", 3, "on_unknown", onUnknown), f, want, stop(places...)...))
	}
	send(good, "report", accepted(1, 3), "taken", "before store started", "after store accepted", "before ack")
	send(good, "report", interrupted(0, 0), "after store started", "before call")
	send(good, "report", interrupted(1, 3), "answer", "before store accepted")
	send(late, "report", interrupted(1, 3), inCall)
	send(good, "resend", again(accepted(1, 3)), "after store started", "before call")

	split := func(f sandbox.Fault, onUnknown string, want outcome, places ...string) {
		r := sending(ten(onUnknown), f, want, stop(places...)...)
		r.set = oneByOne
		rows = append(rows, r)
	}
	split(good, "report", accepted(5, 10), "before store started", "before store mail.batch.started@3", "after store mail.batch.accepted@5",
		"before store accepted")
	split(good, "report", interrupted(4, 8), "after store mail.batch.started@3", "before call@3")
	split(good, "report", interrupted(5, 10), "answer@3", "before store mail.batch.accepted@3")
	late.Match = "r1-4@"
	split(late, "report", interrupted(5, 10), inCall)
	split(good, "resend", again(accepted(5, 10)), "after store mail.batch.started@3", "before call@3")

	matrix(t, rows, func(c *cell) { c.comesBack() })
}

// comesBack lets the stopped worker go on, with another request to do, and then holds the cell against its row.
func (c *cell) comesBack() {
	before := c.count("mandate.>") + c.count("mail.>")
	r := *c.row
	c.row = &r
	next, calls, done, events := any(enrollment("r2")), int64(1), 1, 2
	if to, ok := c.body.(map[string]any)["to"].([]string); ok {
		next, done = message("r2", len(to)), len(to)
		if len(to) == 10 {
			calls, events = 5, 12
		}
	}
	c.stopped.resume()
	c.publish(c.operation.Requested(), next)
	c.waitOutcomes(c.operation.Filter("r2"), 1, time.Minute)
	c.stopped.stop(time.Minute)
	if got := c.count("mandate.>") + c.count("mail.>"); got != before+events {
		c.t.Errorf("%d events, want %d and %d of the next request\n%s", got, before, events, c.transcript())
	}
	c.want.calls, c.want.done = c.want.calls+calls, c.want.done+done
	checkCell(c)
	if done == 10 {
		c.agrees()
	}
	for _, e := range c.events("mail.log.sent.r1.*") {
		r := decode[messages.SentBody](c.t, e)
		errorIf(c.t, r.Begin.After(r.Until.Time), "a call is recorded after its time: %s", e.Raw)
	}
}
