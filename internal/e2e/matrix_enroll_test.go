//go:build unix

package e2e

import (
	"testing"
	"time"

	"errand/internal/sandbox"
	"errand/pkg/messages"
)

// What must have become of an enrollment. Before started is stored nothing is known and
// it is simply made. From then on until its outcome is stored nobody knows what became
// of the call: it is looked up, and what is listed is link_lost, while what is not is
// told (report) or called again (retry).
func TestAnEnrollmentOutlivesEveryDeath(t *testing.T) {
	made := ends{state: messages.Succeeded, calls: 1, done: 1}
	madeAfter := ends{state: messages.Succeeded, calls: 1, done: 1, again: true}
	lost := ends{state: messages.Uncertain, reason: messages.ReasonLinkLost, calls: 1, done: 1}
	interrupted := func(calls int64) ends {
		return ends{state: messages.Uncertain, reason: messages.ReasonInterrupted, calls: calls}
	}
	refused := ends{state: messages.Failed, reason: messages.ReasonRefused, calls: 1}
	retry, report := enrollment("r1", "on_unknown", "retry"), enrollment("r1", "on_unknown", "report")

	var rows []row
	add := func(body any, f sandbox.Fault, want ends, die ...string) {
		if f.Kind != "" {
			f.Operation = "enroll"
		}
		rows = append(rows, row{operation: messages.Enroll, body: body, upstream: f, die: die, want: want})
	}
	good := sandbox.Fault{}
	for _, body := range []any{retry, report} {
		add(body, good, made, "taken", "before store started", "after store succeeded", "before ack", "after ack")
		add(body, good, lost, "answer", "before store succeeded")
		add(body, sandbox.Fault{Kind: sandbox.DelayAnswer, Delay: sandbox.Duration(time.Hour)}, lost, inCall)
		add(body, sandbox.Fault{Kind: sandbox.Delay, Delay: sandbox.Duration(3 * time.Second)}, lost, inCall) // the upstream does it when its caller is dead
		add(body, sandbox.Fault{Kind: sandbox.Status, Status: 422}, refused, "after store failed", "buried", "before ack", "after ack")
		add(body, sandbox.Fault{Kind: sandbox.AcceptCut}, lost, "answer", "before store uncertain", "after store uncertain", "buried", "before ack")
		made.calls = 3 // of which two are answered that it is busy
		add(body, sandbox.Fault{Kind: sandbox.Status, Status: 503, Times: 2}, made, "after store deferred", "before store started@2")
		made.calls = 1
	}

	// Those in which the two differ.
	add(report, good, interrupted(0), "after store started", "before call")
	add(retry, good, madeAfter, "after store started", "before call")
	add(report, sandbox.Fault{Kind: sandbox.Status, Status: 422}, interrupted(1), "answer", "before store failed")
	refused.calls, refused.again = 2, true
	add(retry, sandbox.Fault{Kind: sandbox.Status, Status: 422}, refused, "answer", "before store failed")
	cut := sandbox.Fault{Kind: sandbox.Cut, Times: 1}
	add(report, cut, interrupted(1), "answer", "before store uncertain")
	add(report, cut, ends{state: messages.Uncertain, reason: messages.ReasonNoAnswer, calls: 1}, "after store uncertain", "buried", "before ack")
	madeAfter.calls, lost.calls = 2, 2
	add(retry, cut, madeAfter, "answer", "before call@2", "after store succeeded")
	add(retry, cut, lost, "answer@2", "before store succeeded")
	busy := sandbox.Fault{Kind: sandbox.Status, Status: 503, Times: 2}
	add(report, busy, interrupted(1), "answer")
	add(report, busy, interrupted(2), "before store deferred", "after store started@2", "before call@3")
	madeAfter.calls = 3
	add(retry, busy, madeAfter, "answer", "before store deferred", "after store started@2", "before call@3")

	// Those who take over die too.
	madeAfter.calls, lost.calls = 1, 1
	add(retry, good, made, "taken, before store started, before ack")
	add(retry, good, madeAfter, "before call, before call", "before call, after store succeeded")
	add(retry, good, lost, "before call, answer", "answer, before store uncertain", "answer, buried", "before store succeeded, before store started")
	add(report, good, interrupted(0), "before call, before store started", "before call, after store started", "before call, before store uncertain",
		"before call, after store uncertain", "before call, buried")

	matrix(t, rows, held)
}
