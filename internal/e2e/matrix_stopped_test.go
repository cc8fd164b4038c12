//go:build unix

package e2e

import (
	"testing"
	"time"

	"errand/internal/sandbox"
	"errand/pkg/messages"
)

// A worker stands still at a step until another one has taken its request over and
// ended it. When it goes on it makes no call and tells nothing, and the next request
// finds it as good as before.
func TestAStoppedWorkerComesBackToNothing(t *testing.T) {
	interrupted := func(calls int64, done int) ends {
		return ends{state: messages.Uncertain, reason: messages.ReasonInterrupted, calls: calls, done: done}
	}
	stop := func(places ...string) (all []string) {
		for _, at := range places {
			all = append(all, "stop at "+at)
		}
		return all
	}
	late := sandbox.Fault{Operation: "send", Kind: sandbox.DelayAnswer, Delay: sandbox.Duration(time.Hour), Times: 1}
	var rows []row

	enroll := func(onUnknown string, want ends, places ...string) {
		rows = append(rows, row{operation: messages.Enroll, body: enrollment("r1", "on_unknown", onUnknown), die: stop(places...), want: want})
	}
	made := ends{state: messages.Succeeded, calls: 1, done: 1}
	enroll("report", made, "taken", "before store started", "after store succeeded", "before ack")
	enroll("report", interrupted(0, 0), "after store started", "before call")
	enroll("report", ends{state: messages.Uncertain, reason: messages.ReasonLinkLost, calls: 1, done: 1}, "answer", "before store succeeded")
	made.again = true
	enroll("retry", made, "after store started", "before call")

	send := func(f sandbox.Fault, onUnknown string, want ends, places ...string) {
		rows = append(rows, sending(message("r1", 3, "on_unknown", onUnknown), f, want, stop(places...)...))
	}
	sent := ends{state: messages.Accepted, calls: 1, done: 3}
	send(sandbox.Fault{}, "report", sent, "taken", "before store started", "after store accepted", "before ack")
	send(sandbox.Fault{}, "report", interrupted(0, 0), "after store started", "before call")
	send(sandbox.Fault{}, "report", interrupted(1, 3), "answer", "before store accepted")
	send(late, "report", interrupted(1, 3), inCall)
	sent.again = true
	send(sandbox.Fault{}, "resend", sent, "after store started", "before call")

	split := func(f sandbox.Fault, onUnknown string, want ends, places ...string) {
		r := sending(ten(onUnknown), f, want, stop(places...)...)
		r.set = oneByOne
		rows = append(rows, r)
	}
	whole := ends{state: messages.Accepted, calls: 5, done: 10}
	split(sandbox.Fault{}, "report", whole, "before store started", "before store mail.batch.started@3", "after store mail.batch.accepted@5", "before store accepted")
	split(sandbox.Fault{}, "report", interrupted(4, 8), "after store mail.batch.started@3", "before call@3")
	split(sandbox.Fault{}, "report", interrupted(5, 10), "answer@3", "before store mail.batch.accepted@3")
	late.Match = "r1-4@"
	split(late, "report", interrupted(5, 10), inCall)
	whole.again = true
	split(sandbox.Fault{}, "resend", whole, "after store mail.batch.started@3", "before call@3")

	matrix(t, rows, func(c *cell) { c.comesBack() })
}

// comesBack lets the stopped worker go on, with another request to do, and then holds
// the cell against its row.
func (c *cell) comesBack() {
	c.t.Helper()
	told := c.count("mandate.>") + c.count("mail.>")
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
	c.waitTold(c.operation.Filter("r2"), 1, time.Minute)
	c.stopped.stop(30 * time.Second)
	if got := c.count("mandate.>") + c.count("mail.>"); got != told+events {
		c.t.Errorf("%d events, want %d and %d of the next request\n%s", got, told, events, c.story())
	}
	c.want.calls, c.want.done = c.want.calls+calls, c.want.done+done
	held(c)
	if done == 10 {
		c.agrees()
	}
}
