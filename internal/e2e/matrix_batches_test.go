//go:build unix

package e2e

import (
	"fmt"
	"testing"
	"time"

	"errand/internal/sandbox"
	"errand/pkg/messages"
)

// ten is a message to ten people, sent as five batches.
func ten(onUnknown string) map[string]any { return message("r1", 10, "on_unknown", onUnknown) }

// oneByOne sends the batches one after the other: which of them a death hits is exact.
var oneByOne = []string{"MAIL_BATCH_SIZE=2", "MAIL_BATCH_PARALLEL=1"}

// A message of five batches stores twelve events: started, two for each batch, and its
// outcome. Dying before and after each of them costs at most the one batch that was on
// its way, and nothing once that one's end is stored.
func TestAMessageOfBatchesOutlivesADeathAtEveryStore(t *testing.T) {
	whole := ends{state: messages.Accepted, calls: 5, done: 10}
	lost := func(calls int64, done int) ends {
		return ends{state: messages.Uncertain, reason: messages.ReasonInterrupted, calls: calls, done: done}
	}
	var rows []row
	for n := 1; n <= 12; n++ {
		before, after := whole, whole
		switch {
		case n == 1 || n == 12:
		case n%2 == 0: // a batch is announced
			after = lost(4, 8)
		default: // a batch was sent
			before = lost(5, 10)
		}
		rows = append(rows, sending(ten("report"), sandbox.Fault{}, before, fmt.Sprint("before store@", n)),
			sending(ten("report"), sandbox.Fault{}, after, fmt.Sprint("after store@", n)))
	}
	batches(t, rows, oneByOne, heldByBatch)
}

// What must have become of a message when one of its batches meets a fault: the others
// are as they would be without it.
func TestAMessageOfBatchesOutlivesEveryDeath(t *testing.T) {
	var rows []row
	add := func(onUnknown string, f sandbox.Fault, want ends, die ...string) {
		rows = append(rows, sending(ten(onUnknown), f, want, die...))
	}
	lost := func(reason messages.Reason, calls int64, done int) ends {
		return ends{state: messages.Uncertain, reason: reason, calls: calls, done: done}
	}
	const interrupted, third = messages.ReasonInterrupted, "r1-4@"
	good := sandbox.Fault{}
	whole := ends{state: messages.Accepted, calls: 5, done: 10}
	add("report", good, whole, "taken", "before ack", "after ack", "next batch@1")
	add("report", good, lost(interrupted, 4, 8), "before call@3", "before call@3, before store mail.batch.uncertain",
		"before call@3, after store mail.batch.uncertain", "before call@3, after store uncertain")
	add("report", good, lost(interrupted, 5, 10), "answer@3", "answer@2, answer@2", "answer@3, buried")
	add("report", good, lost(interrupted, 3, 6), "before call@2, before call@2")
	whole.again = true
	add("resend", good, whole, "before call@3", "before call@2, before call@2")
	whole.calls, whole.done = 6, 12
	add("resend", good, whole, "answer@3", "before store mail.batch.accepted@3")

	late := sandbox.Fault{Kind: sandbox.DelayAnswer, Delay: sandbox.Duration(time.Hour), Times: 1, Match: third}
	add("report", late, lost(interrupted, 5, 10), inCall)
	add("resend", late, whole, inCall)

	no := sandbox.Fault{Kind: sandbox.Status, Status: 422, Match: third}
	add("report", no, ends{state: messages.Partial, calls: 5, done: 8}, "after store mail.batch.refused", "before store partial", "after store partial")
	add("report", no, lost(interrupted, 5, 8), "before store mail.batch.refused")
	no.Match = ""
	add("report", no, ends{state: messages.Failed, reason: messages.ReasonRefused, calls: 5}, "before store failed", "after store failed", "buried")

	cut := sandbox.Fault{Kind: sandbox.Cut, Times: 1, Match: third}
	add("report", cut, lost(interrupted, 5, 8), "before store mail.batch.uncertain")
	add("report", cut, lost(messages.ReasonNoAnswer, 5, 8), "after store mail.batch.uncertain", "before store uncertain", "after store uncertain", "buried")
	whole.done = 10
	add("resend", cut, whole, "answer@3", "before call@4")

	busy := sandbox.Fault{Kind: sandbox.Status, Status: 503, Times: 2, Match: third}
	whole.calls, whole.again = 7, false
	add("report", busy, whole, "after store mail.batch.deferred", "before store deferred", "after store deferred", "before store started@2")
	add("report", busy, lost(interrupted, 6, 8), "before store mail.batch.deferred")
	batches(t, rows, oneByOne, heldByBatch)
}

// Of batches that are sent three at a time a death costs at most three. What is told of
// each is what the sandbox did, and nobody is written to twice.
func TestBatchesOnTheirWayAtOnceOutliveEveryDeath(t *testing.T) {
	die := []string{"next batch@3", "before call@3", "answer@1", "answer@3", "answer@5", inCall}
	for n := 1; n <= 12; n += 2 {
		die = append(die, fmt.Sprint("before store@", n), fmt.Sprint("after store@", n+1))
	}
	slow := sandbox.Fault{Kind: sandbox.Delay, Delay: sandbox.Duration(100 * time.Millisecond)}
	rows := []row{sending(ten("report"), slow, ends{}, die...)}
	batches(t, rows, []string{"MAIL_BATCH_SIZE=2", "MAIL_BATCH_PARALLEL=3"}, func(c *cell) {
		c.oneEnd(c.filter())
		o := c.box.Oracle(sandbox.Query{})
		if lost := c.agrees(); lost > 3 || o.Mail.TwiceCount != 0 || o.Calls["send"] > 5 || o.Calls["send"] < int64(5-lost) {
			c.t.Errorf("%d batches lost, %d calls, served twice: %v\n%s", lost, o.Calls["send"], o.Mail.Twice, c.story())
		}
	})
}

func batches(t *testing.T, rows []row, env []string, judge func(*cell)) {
	t.Helper()
	for i := range rows {
		rows[i].set = env
	}
	matrix(t, rows, judge)
}

func heldByBatch(c *cell) {
	c.t.Helper()
	held(c)
	c.agrees()
}

// agrees holds each batch against the sandbox, and the outcome against the batches. It
// gives how many are uncertain.
func (c *cell) agrees() (lost int) {
	c.t.Helper()
	if c.box.Oracle(sandbox.Query{Summary: true}).Mail.TwiceCount == 0 {
		c.wantBatchesAsTheOracleKnows("r1", 10, 5)
	}
	e := c.oneEnd(c.filter())
	outcome := decode[messages.SendOutcome](c.t, e)
	count := map[messages.State]int{}
	accepted := 0
	for batch, history := range c.histories("mail.batch.*.r1.*") {
		last, err := end(history)
		if err != nil {
			c.t.Fatalf("%s: %v\n%s", batch, err, c.story())
		}
		count[last.state()]++
		accepted += number(last.Body["accepted"])
	}
	want := messages.Accepted
	switch {
	case count[messages.Uncertain] > 0:
		want = messages.Uncertain
	case count[messages.Accepted] == 0:
		want = messages.Failed
	case count[messages.Refused] > 0:
		want = messages.Partial
	}
	if e.state() != want || outcome.Accepted != accepted || outcome.Batches != 5 || len(outcome.Unsettled) != 5-count[messages.Accepted] {
		c.t.Errorf("the batches are %v: %s %s", count, e.Subject, e.Raw)
	}
	c.buried(e)
	return count[messages.Uncertain]
}
