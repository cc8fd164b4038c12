package e2e

import (
	"testing"
	"time"

	"errand/internal/sandbox"
	"errand/pkg/messages"
)

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
	rows.resend(good, accepted(1, 3), "taken", "before store started", "after store accepted", "before ack", "after ack", "taken, before store started, before ack")
	rows.report(good, interrupted(0, 0), "after store started", "before call", "before call, before store uncertain", "before call, after store uncertain", "before call, dead-lettered")
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
	rows.report(cutOnce, outcome{state: messages.Uncertain, reason: messages.ReasonNoAnswer, calls: 1}, "after store uncertain", "dead-lettered", "before ack")
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
