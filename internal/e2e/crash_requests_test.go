package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"errand/internal/bus"
	"errand/internal/sandbox"
	"errand/pkg/messages"
)

func TestAnEnrollmentSurvivesEveryCrash(t *testing.T) {
	var rows table
	rows.enrollments()
	rows.enrollmentsOfUnknownFate()
	rows.enrollmentsTakenOver()
	matrix(t, rows, checkCell)
}

// enrollments are those that end alike whatever on_unknown says.
func (rows *table) enrollments() {
	for _, body := range []any{retrying, reporting} {
		rows.enroll(body, good, enrolled(1), "taken", "before store started", "after store succeeded", "before ack", "after ack")
		rows.enroll(body, good, linkLost(1), "answer", "before store succeeded")
		rows.enroll(body, sandbox.Fault{Kind: sandbox.DelayAnswer, Delay: sandbox.Duration(time.Hour)}, linkLost(1), inCall)
		// done when its caller is dead
		rows.enroll(body, sandbox.Fault{Kind: sandbox.Delay, Delay: sandbox.Duration(3 * time.Second)}, linkLost(1), inCall)
		rows.enroll(body, sandbox.Fault{Kind: sandbox.AcceptCut}, linkLost(1), "answer", "before store uncertain", "after store uncertain",
			"dead-lettered", "before ack")
		rows.enroll(body, unprocessable, refused(1), "after store failed", "dead-lettered", "before ack", "after ack")
		rows.enroll(body, busyTwice, enrolled(3), "after store deferred", "before store started@2")
	}
	rows.enroll(enrollment("r1", "give_up_at", "2020-01-01T00:00:00Z"), good,
		outcome{state: messages.Failed, reason: messages.ReasonUnavailable},
		"before store failed", "after store failed", "dead-lettered")
}

// enrollmentsOfUnknownFate are those in which it decides.
func (rows *table) enrollmentsOfUnknownFate() {
	rows.enroll(reporting, good, interrupted(0, 0), "after store started", "before call")
	rows.enroll(retrying, good, again(enrolled(1)), "after store started", "before call")
	rows.enroll(reporting, unprocessable, interrupted(1, 0), "answer", "before store failed")
	rows.enroll(retrying, unprocessable, again(interrupted(2, 0)), "answer", "before store failed")

	rows.enroll(reporting, cutOnce, interrupted(1, 0), "answer", "before store uncertain")
	rows.enroll(reporting, cutOnce, outcome{state: messages.Uncertain, reason: messages.ReasonNoAnswer, calls: 1}, "after store uncertain",
		"dead-lettered", "before ack")
	rows.enroll(retrying, cutOnce, again(enrolled(2)), "answer", "before call@2", "after store succeeded")
	rows.enroll(retrying, cutOnce, linkLost(2), "answer@2", "before store succeeded")

	rows.enroll(reporting, busyTwice, interrupted(1, 0), "answer")
	rows.enroll(reporting, busyTwice, interrupted(2, 0), "before store deferred", "after store started@2", "before call@3")
	rows.enroll(retrying, busyTwice, again(enrolled(3)), "answer", "before store deferred", "after store started@2", "before call@3")

	denied := sandbox.Fault{Kind: sandbox.Status, Status: 401, Times: 1} // the program is held until a probe comes through
	rows.enroll(reporting, denied, enrolled(2), "after store deferred", "before store started@2")
	rows.enroll(reporting, denied, interrupted(1, 0), "answer", "before store deferred")
	rows.enroll(retrying, denied, again(enrolled(2)), "answer", "before store deferred")
}

// enrollmentsTakenOver are those whose next workers die too.
func (rows *table) enrollmentsTakenOver() {
	rows.enroll(retrying, good, enrolled(1), "taken, before store started, before ack")
	rows.enroll(retrying, good, again(enrolled(1)), "before call, before call", "before call, after store succeeded")
	rows.enroll(retrying, good, linkLost(1), "before call, answer", "answer, before store uncertain", "answer, dead-lettered")
	rows.enroll(reporting, good, interrupted(0, 0), "before call, before store uncertain",
		"before call, after store uncertain", "before call, dead-lettered")
	slowList := sandbox.Fault{Operation: "transactions", Kind: sandbox.DelayAnswer, Delay: sandbox.Duration(time.Hour), Times: 1}
	rows.enroll(reporting, slowList, interrupted(0, 0), "before call, "+inCall)
}

// What must have become of a message of one batch: as of an enrollment, but there is
// nowhere to look it up. What is not known is reported (report) or sent again (resend).

func TestAMessageSurvivesEveryCrash(t *testing.T) {
	var rows table
	rows.messages()
	rows.messagesThatMeetAFault()
	matrix(t, rows, checkCell)
}

func (rows *table) messages() {
	rows.report(good, accepted(1, 3), "taken", "before store started", "after store accepted", "before ack", "after ack")
	rows.resend(good, accepted(1, 3), "taken", "before store started", "after store accepted", "before ack", "after ack",
		"taken, before store started, before ack")
	rows.report(good, interrupted(0, 0), "after store started", "before call", "before call, before store uncertain",
		"before call, after store uncertain", "before call, dead-lettered")
	rows.resend(good, again(accepted(1, 3)), "after store started", "before call", "before call, before call")
	rows.report(good, interrupted(1, 3), "answer", "before store accepted", "answer, before ack")
	rows.resend(good, again(accepted(2, 6)), "answer", "before store accepted", "before call, answer, after store accepted")
	rows.resend(good, again(accepted(3, 9)), "answer, answer")

	late := sandbox.Fault{Kind: sandbox.DelayAnswer, Delay: sandbox.Duration(time.Hour), Times: 1}
	rows.report(late, interrupted(1, 3), inCall)
	rows.resend(late, again(accepted(2, 6)), inCall)
}

func (rows *table) messagesThatMeetAFault() {
	rows.report(unprocessable, refused(1), "after store failed", "dead-lettered", "before ack", "after ack")
	rows.report(unprocessable, interrupted(1, 0), "answer", "before store failed")
	rows.resend(unprocessable, again(interrupted(2, 0)), "answer", "before store failed")

	took := sandbox.Fault{Kind: sandbox.AcceptCut, Times: 1}
	rows.report(cutOnce, interrupted(1, 0), "answer", "before store uncertain")
	rows.report(took, interrupted(1, 3), "before store uncertain")
	rows.report(cutOnce, outcome{state: messages.Uncertain, reason: messages.ReasonNoAnswer, calls: 1}, "after store uncertain",
		"dead-lettered", "before ack")
	rows.resend(cutOnce, again(accepted(2, 3)), "answer", "before call@2", "after store accepted")
	rows.resend(cutOnce, again(accepted(3, 6)), "answer@2")
	rows.resend(took, again(accepted(2, 6)), "answer", "before call@2")

	rows.report(busyTwice, accepted(3, 3), "after store deferred", "before store started@2")
	rows.resend(busyTwice, accepted(3, 3), "after store deferred", "before store started@2")
	rows.report(busyTwice, interrupted(1, 0), "answer")
	rows.report(busyTwice, interrupted(2, 0), "before store deferred", "after store started@2", "before call@3")
	rows.resend(busyTwice, again(accepted(3, 3)), "answer", "before store deferred", "after store started@2", "before call@3")

	denied := sandbox.Fault{Kind: sandbox.Status, Status: 402, Times: 1}
	rows.report(denied, accepted(2, 3), "after store deferred", "before store started@2")
	rows.report(denied, interrupted(1, 0), "before store deferred")
	rows.resend(denied, again(accepted(2, 3)), "before store deferred")

	short := sandbox.Fault{Kind: sandbox.Short, Times: 1}
	rows.report(short, outcome{state: messages.Partial, calls: 1, done: 1}, "after store partial", "before ack")
	rows.report(short, interrupted(1, 1), "before store partial")
}

// A read is made again after a crash, until its outcome is stored; of each page of a listing the last event counts.
func TestReadsSurviveEveryCrash(t *testing.T) {
	const records = 26 // one more than a page of the sandbox holds
	var before []any
	for i := range records {
		before = append(before, enrollment(fmt.Sprint("e", i)))
	}
	ask := map[string]any{"request_id": "r1"}
	var rows []row
	add := func(op messages.Operation, f sandbox.Fault, want outcome, die ...string) {
		r := row{operation: op, body: ask, upstream: f, want: want, die: die}
		if op == messages.Transactions {
			r.first = before
		}
		rows = append(rows, r)
	}
	no := unprocessable
	no.Operation = "*"

	listed := func(calls int64) outcome { return outcome{state: messages.Listed, calls: calls, done: records} }
	add(messages.Transactions, good, listed(2), "taken", "after store listed", "before ack", "after ack")
	add(messages.Transactions, good, listed(3), "before store page")
	add(messages.Transactions, good, listed(2), "after store page")
	add(messages.Transactions, good, listed(3), "before store page@2")
	add(messages.Transactions, good, listed(2), "after store page@2", "before store listed")
	add(messages.Transactions, good, listed(2), "after store page@2, before store listed")
	add(messages.Transactions, no, refused(2), "before store failed")
	add(messages.Transactions, no, refused(1), "after store failed", "dead-lettered")

	reported := func(calls int64) outcome { return outcome{state: messages.Reported, calls: calls} }
	add(messages.Account, good, reported(1), "taken", "after store reported", "before ack", "after ack")
	add(messages.Account, good, reported(2), "before store reported")
	add(messages.Account, no, refused(2), "before store failed")
	add(messages.Account, no, refused(1), "after store failed", "dead-lettered")

	matrix(t, rows, func(c *cell) {
		checkCell(c)
		if c.want.state != messages.Listed {
			return
		}
		got := map[int]int{} // records by page
		for _, e := range c.events("mandate.transactions.page.r1") {
			got[number(e.Body["page"])] = len(decode[messages.TransactionsPage](t, e).Records)
		}
		if diff := cmp.Diff(map[int]int{1: 25, 2: 1}, got); diff != "" {
			c.t.Errorf("records by page (-want +got):\n%s%s", diff, c.transcript())
		}
	})
}

// Bad input is reported once and has one dead letter, wherever its worker dies; nothing is called for it.
func TestBadInputSurvivesEveryCrash(t *testing.T) {
	failed := func(reason messages.Reason) outcome { return outcome{state: messages.Failed, reason: reason} }
	invalid, conflict := failed(messages.ReasonInvalidRequest), failed(messages.ReasonConflict)
	conflict.calls, conflict.done = 1, 1 // of the first request
	places := []string{"taken", "before store failed", "after store failed", "dead-lettered", "before ack", "after ack"}
	noValid := message("r1", 0)
	noValid["to"] = []string{"no address"}
	matrix(t, []row{
		{operation: messages.Enroll, body: []byte("{"), id: bus.MandateRequests + "-1", want: invalid,
			die: append(places, "after store failed, dead-lettered, before ack", "taken, before store failed, after ack")},
		{operation: messages.Enroll, body: enrollment("r1", "amuont", "5"), want: invalid, die: places[1:4]},
		{operation: messages.Enroll, body: enrollment("r1", "application_reason", "another"), first: []any{enrollment("r1")},
			id: bus.MandateRequests + "-2", want: conflict, die: places},
		{operation: messages.Send, body: []byte("nope"), id: bus.MailRequests + "-1", want: invalid, die: places},
		{operation: messages.Send, body: noValid, want: invalid, die: places[1:4]},
		{operation: messages.Transactions, body: map[string]any{"page": 1, "request_id": "r1"}, want: invalid, die: places[1:4]},
		{operation: messages.Account, body: map[string]any{"account": 1, "request_id": "r1"}, want: invalid, die: places[1:4]},
	}, checkCell)
}

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
}
