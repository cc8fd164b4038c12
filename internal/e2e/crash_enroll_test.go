package e2e

import (
	"testing"
	"time"

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
		rows.enroll(body, sandbox.Fault{Kind: sandbox.Delay, Delay: sandbox.Duration(3 * time.Second)}, linkLost(1), inCall) // done when its caller is dead
		rows.enroll(body, sandbox.Fault{Kind: sandbox.AcceptCut}, linkLost(1), "answer", "before store uncertain", "after store uncertain", "dead-lettered", "before ack")
		rows.enroll(body, unprocessable, refused(1), "after store failed", "dead-lettered", "before ack", "after ack")
		rows.enroll(body, busyTwice, enrolled(3), "after store deferred", "before store started@2")
	}
	rows.enroll(enrollment("r1", "give_up_at", "2020-01-01T00:00:00Z"), good, outcome{state: messages.Failed, reason: messages.ReasonUnavailable},
		"before store failed", "after store failed", "dead-lettered")
}

// enrollmentsOfUnknownFate are those in which it decides.
func (rows *table) enrollmentsOfUnknownFate() {
	rows.enroll(reporting, good, interrupted(0, 0), "after store started", "before call")
	rows.enroll(retrying, good, again(enrolled(1)), "after store started", "before call")
	rows.enroll(reporting, unprocessable, interrupted(1, 0), "answer", "before store failed")
	rows.enroll(retrying, unprocessable, again(interrupted(2, 0)), "answer", "before store failed")

	rows.enroll(reporting, cutOnce, interrupted(1, 0), "answer", "before store uncertain")
	rows.enroll(reporting, cutOnce, outcome{state: messages.Uncertain, reason: messages.ReasonNoAnswer, calls: 1}, "after store uncertain", "dead-lettered", "before ack")
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
	rows.enroll(retrying, good, linkLost(1), "before call, answer", "answer, before store uncertain", "answer, dead-lettered", "before store succeeded, before store started")
	rows.enroll(reporting, good, interrupted(0, 0), "before call, before store started", "before call, after store started", "before call, before store uncertain",
		"before call, after store uncertain", "before call, dead-lettered")
	slowList := sandbox.Fault{Operation: "transactions", Kind: sandbox.DelayAnswer, Delay: sandbox.Duration(time.Hour), Times: 1}
	rows.enroll(reporting, slowList, interrupted(0, 0), "before call, "+inCall)
}
