package e2e

import (
	"fmt"
	"testing"
	"time"

	"errand/internal/sandbox"
	"errand/pkg/messages"
)

func TestAMessageOfBatchesSurvivesEveryCrash(t *testing.T) {
	var rows table
	rows.atEveryStore()
	rows.batchesThatMeetAFault()
	for i := range rows {
		rows[i].set = oneByOne
	}
	rows.batchesAtOnce()
	matrix(t, rows, func(c *cell) {
		c.t.Helper()
		if c.want.state != "" {
			checkCell(c)
			c.agrees()
			return
		}
		o := c.oracle()
		if lost := c.agrees(); lost > 3 || o.Mail.TwiceCount != 0 || o.Calls["send"] > 5 || o.Calls["send"] < int64(5-lost) {
			c.t.Errorf("%d batches lost, %d calls, served twice: %v\n%s", lost, o.Calls["send"], o.Mail.Twice, c.transcript())
		}
	})
}

// A message of five batches stores twelve events: started, two for each batch, and its outcome. Dying before and after
// each of them costs at most the one batch that was on its way, and nothing once that one's end is stored.
func (rows *table) atEveryStore() {
	for n := 1; n <= 12; n++ {
		before, after := accepted(5, 10), accepted(5, 10)
		switch {
		case n == 1 || n == 12:
		case n%2 == 0: // a batch is announced
			after = interrupted(4, 8)
		default: // a batch was sent
			before = interrupted(5, 10)
		}
		*rows = append(*rows, sending(ten("report"), good, before, fmt.Sprint("before store@", n)),
			sending(ten("report"), good, after, fmt.Sprint("after store@", n)))
	}
}

// What must have become of a message when one of its batches meets a fault: the others are as they would be without it.
func (rows *table) batchesThatMeetAFault() {
	add := func(onUnknown string, f sandbox.Fault, want outcome, die ...string) {
		*rows = append(*rows, sending(ten(onUnknown), f, want, die...))
	}
	add("report", good, accepted(5, 10), "taken", "before ack", "after ack", "next batch@1")
	add("report", good, interrupted(4, 8), "before call@3", "before call@3, before store mail.batch.uncertain",
		"before call@3, after store mail.batch.uncertain", "before call@3, after store uncertain")
	add("report", good, interrupted(5, 10), "answer@3", "answer@2, answer@2", "answer@3, dead-lettered")
	add("report", good, interrupted(3, 6), "before call@2, before call@2")
	add("resend", good, again(accepted(5, 10)), "before call@3", "before call@2, before call@2")
	add("resend", good, again(accepted(6, 12)), "answer@3", "before store mail.batch.accepted@3")

	const third = "r1-4@"
	late := sandbox.Fault{Kind: sandbox.DelayAnswer, Delay: sandbox.Duration(time.Hour), Times: 1, Match: third}
	add("report", late, interrupted(5, 10), inCall)
	add("resend", late, again(accepted(6, 12)), inCall)

	no := unprocessable
	add("report", no, refused(5), "before store failed", "after store failed", "dead-lettered")
	no.Match = third
	add("report", no, outcome{state: messages.Partial, calls: 5, done: 8}, "after store mail.batch.refused", "before store partial",
		"after store partial")
	add("report", no, interrupted(5, 8), "before store mail.batch.refused")

	cut, busy := cutOnce, busyTwice
	cut.Match, busy.Match = third, third
	add("report", cut, interrupted(5, 8), "before store mail.batch.uncertain")
	add("report", cut, outcome{state: messages.Uncertain, reason: messages.ReasonNoAnswer, calls: 5, done: 8},
		"after store mail.batch.uncertain", "before store uncertain", "after store uncertain", "dead-lettered")
	add("resend", cut, again(accepted(6, 10)), "answer@3", "before call@4")
	add("report", busy, accepted(7, 10), "after store mail.batch.deferred", "before store deferred", "after store deferred",
		"before store started@2")
	add("report", busy, interrupted(6, 8), "before store mail.batch.deferred")
}

// Of batches that are sent three at a time a crash costs at most three. What is reported of
// each is what the sandbox did, and nobody gets a mail twice.
func (rows *table) batchesAtOnce() {
	die := []string{"next batch@3", "before call@3", "answer@1", "answer@3", "answer@5"}
	for n := 1; n <= 12; n += 2 {
		die = append(die, fmt.Sprint("before store@", n), fmt.Sprint("after store@", n+1))
	}
	slow := sandbox.Fault{Kind: sandbox.Delay, Delay: sandbox.Duration(100 * time.Millisecond)}
	late := sandbox.Fault{Kind: sandbox.DelayAnswer, Delay: sandbox.Duration(time.Hour), Times: 3}
	for _, r := range []row{sending(ten("report"), slow, outcome{}, die...), sending(ten("report"), late, outcome{}, inCall)} {
		r.set = []string{"MAIL_BATCH_SIZE=2", "MAIL_BATCH_PARALLEL=3"}
		*rows = append(*rows, r)
	}
}

// ten is a message to ten people, sent as five batches.
func ten(onUnknown string) map[string]any { return message("r1", 10, "on_unknown", onUnknown) }

// oneByOne sends the batches one after the other: which of them a crash hits is exact.
var oneByOne = []string{"MAIL_BATCH_SIZE=2", "MAIL_BATCH_PARALLEL=1"}

// agrees holds each batch against the sandbox, and the outcome against the batches. It returns how many are uncertain.
func (c *cell) agrees() (lost int) {
	c.t.Helper()
	if c.totals().Mail.TwiceCount == 0 {
		c.wantBatchesMatchOracle("r1", 10, 5)
	}
	e := c.wantFinal(c.filter())
	outcome := decode[messages.SendOutcome](c.t, e)
	count := map[messages.State]int{}
	accepted := 0
	for batch, history := range c.histories("mail.batch.*.r1.*") {
		last, err := finalEvent(history)
		if err != nil {
			c.t.Fatalf("%s: %v\n%s", batch, err, c.transcript())
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
	c.wantDeadLetter(e)
	return count[messages.Uncertain]
}

// What must have become of an enrollment. Before started is stored nothing is known and it is simply made. From then on
// until its outcome is stored nobody knows what became of the call: it is looked up, and what is listed is link_lost,
// while what is not is reported (report) or called again (retry).
var (
	retrying, reporting = enrollment("r1", "on_unknown", "retry"), enrollment("r1", "on_unknown", "report")
	good                = sandbox.Fault{}
	unprocessable       = sandbox.Fault{Kind: sandbox.Status, Status: 422}
	cutOnce             = sandbox.Fault{Kind: sandbox.Cut, Times: 1}
	busyTwice           = sandbox.Fault{Kind: sandbox.Status, Status: 503, Times: 2} // RETRY_TRIES: then it is deferred
)

// interrupted is the end of a request that nobody knows more of than that its worker died.
func interrupted(calls int64, done int) outcome {
	return outcome{state: messages.Uncertain, reason: messages.ReasonInterrupted, calls: calls, done: done}
}

// refused is the end of a request that the upstream said no to.
func refused(calls int64) outcome {
	return outcome{state: messages.Failed, reason: messages.ReasonRefused, calls: calls}
}

// enrolled is the end of an enrollment after so many calls.
func enrolled(calls int64) outcome { return outcome{state: messages.Succeeded, calls: calls, done: 1} }

// linkLost is the end of one that was made, but whose answer nobody has.
func linkLost(calls int64) outcome {
	return outcome{state: messages.Uncertain, reason: messages.ReasonLinkLost, calls: calls, done: 1}
}

// again is an end that says that a call was made after one of unknown fate.
func again(e outcome) outcome {
	e.again = true
	return e
}

// table is a part of the matrix.
type table []row

func (t *table) enroll(body any, f sandbox.Fault, want outcome, die ...string) {
	if f.Kind != "" && f.Operation == "" {
		f.Operation = "enroll"
	}
	*t = append(*t, row{operation: messages.Enroll, body: body, upstream: f, die: die, want: want})
}

// accepted is the end of a message after so many calls; done counts those served twice twice.
func accepted(calls int64, done int) outcome {
	return outcome{state: messages.Accepted, calls: calls, done: done}
}

func sending(body map[string]any, f sandbox.Fault, want outcome, die ...string) row {
	if f.Kind != "" {
		f.Operation = "send"
	}
	return row{operation: messages.Send, body: body, upstream: f, die: die, want: want}
}

func (t *table) report(f sandbox.Fault, want outcome, die ...string) {
	*t = append(*t, sending(message("r1", 3, "on_unknown", "report"), f, want, die...))
}

func (t *table) resend(f sandbox.Fault, want outcome, die ...string) {
	*t = append(*t, sending(message("r1", 3, "on_unknown", "resend"), f, want, die...))
}
