package e2e

import (
	"errand/internal/sandbox"
	"errand/pkg/messages"
)

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
