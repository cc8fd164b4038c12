package e2e

import (
	"fmt"
	"testing"
	"time"

	"errand/internal/sandbox"
	"errand/pkg/messages"
)

// What must have become of a message that waits for the sending log, with a poller that
// reads it: what was sent is accepted, what was not is sent, nobody is served twice and
// nothing is lost, wherever its worker dies and however often.

func TestAMessageThatWaitsForTheLogSurvivesEveryCrash(t *testing.T) {
	var rows table
	rows.concluded()
	rows.concludedAfterAFault()
	rows.concludedBatches()
	matrix(t, rows, func(c *cell) {
		checkCell(c)
		if len(c.to()) == 10 {
			c.agrees()
		}
		c.concludedOnce()
	})
}

// A worker dies around its call, or around what the log says of it.
func (rows *table) concluded() {
	rows.conclude(good, accepted(1, 3), "after store accepted", "before ack")

	// Not sent, so it is sent: also when that goes wrong.
	rows.conclude(good, again(accepted(1, 3)), "after store started", "before call", // without a record, and with one
		"before call, before store deferred", "before call, after store deferred",
		"before call, before store started", "before call, after store started", "before call, before call", "before call, answer",
		"after store started, after store started", "before call, before call, answer")

	// Sent, so it is accepted.
	rows.conclude(good, again(accepted(1, 3)), "answer", "before store accepted",
		"answer, before store deferred", "answer, after store deferred", "answer, before store accepted", "answer, after store accepted", "answer, before ack")
	late := sandbox.Fault{Kind: sandbox.DelayAnswer, Delay: sandbox.Duration(time.Hour), Times: 1}
	rows.conclude(late, again(accepted(1, 3)), inCall)
	late = sandbox.Fault{Kind: sandbox.Delay, Delay: sandbox.Duration(3 * time.Second), Times: 1} // done when its caller is dead
	rows.conclude(late, again(accepted(1, 3)), inCall)
}

// One whose call goes wrong without a crash waits too; the second store of started, and
// the second call, come after the conclusion.
func (rows *table) concludedAfterAFault() {
	rows.conclude(cutOnce, again(accepted(2, 3)), "answer", "before store deferred", "after store deferred",
		"before store started@2", "after store started@2", "before call@2", "answer@2", "after store accepted")
	took := sandbox.Fault{Kind: sandbox.AcceptCut, Times: 1}
	rows.conclude(took, again(accepted(1, 3)), "before store deferred", "after store deferred", "before store accepted", "before ack")

	rows.conclude(busyTwice, accepted(3, 3), "after store deferred", "before store started@2")
	rows.conclude(busyTwice, again(accepted(3, 3)), "answer", "before store deferred", "before call@3")
	rows.conclude(unprocessable, again(refused(2)), "answer", "before store failed")
}

// The third of five batches is the one of unknown fate; its second call is the sixth.
func (rows *table) concludedBatches() {
	add := func(f sandbox.Fault, want outcome, die ...string) {
		f.Match = "r1-4@"
		r := sending(ten("conclude"), f, want, die...)
		r.log, r.set = true, oneByOne
		*rows = append(*rows, r)
	}
	const deferred, started, accepts = " store mail.batch.deferred", " store mail.batch.started", " store mail.batch.accepted"
	add(good, again(accepted(5, 10)), "after"+started+"@3", "before call@3, after"+deferred, "before call@3, before call@3", "answer@3, before"+accepts+"@3")
	add(cutOnce, again(accepted(6, 10)), "before"+deferred, "before store deferred", "after"+started+"@6", "answer@6", "after"+accepts+"@5")
	took := sandbox.Fault{Kind: sandbox.AcceptCut, Times: 1}
	add(took, again(accepted(5, 10)), "after"+deferred, "after store deferred", "before"+accepts+"@5", "before store accepted")
}

// concludedOnce wants nobody to be served twice, a record of each call, and no conclusion
// published twice.
func (c *cell) concludedOnce() {
	c.t.Helper()
	o := c.box.Oracle(sandbox.Query{Summary: true})
	if n := c.count("mail.log.sent.r1.*"); o.Mail.TwiceCount != 0 || int64(n) < o.Calls["send"]-int64(o.Faults[sandbox.Status]) {
		c.t.Errorf("%d served twice, %d records of %d calls\n%s", o.Mail.TwiceCount, n, o.Calls["send"], c.transcript())
	}
	published := map[string]int{}
	for _, e := range c.events("mail.log.concluded.r1.*") {
		b := decode[messages.ConcludedBody](c.t, e)
		key := fmt.Sprint(b.Batch, " ", b.Outcome, " ", b.Until)
		if published[key]++; published[key] > 1 || b.Outcome == messages.Unclear {
			c.t.Errorf("concluded %s\n%s", key, c.transcript())
		}
	}
}
