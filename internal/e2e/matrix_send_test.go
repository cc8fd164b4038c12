//go:build unix

package e2e

import (
	"testing"
	"time"

	"errand/internal/sandbox"
	"errand/pkg/messages"
)

// What must have become of a message of one batch: as of an enrollment, but there is
// nowhere to look it up. What is not known is told (report) or sent again (resend).
func TestAMessageOutlivesEveryDeath(t *testing.T) {
	var rows []row
	report := func(f sandbox.Fault, want ends, die ...string) {
		rows = append(rows, sending(message("r1", 3, "on_unknown", "report"), f, want, die...))
	}
	resend := func(f sandbox.Fault, want ends, die ...string) {
		rows = append(rows, sending(message("r1", 3, "on_unknown", "resend"), f, want, die...))
	}
	interrupted := func(calls int64, done int) ends {
		return ends{state: messages.Uncertain, reason: messages.ReasonInterrupted, calls: calls, done: done}
	}
	sent := func(calls int64, done int) ends { return ends{state: messages.Accepted, calls: calls, done: done} }
	again := func(calls int64, done int) ends {
		return ends{state: messages.Accepted, calls: calls, done: done, again: true}
	}

	good := sandbox.Fault{}
	report(good, sent(1, 3), "taken", "before store started", "after store accepted", "before ack", "after ack")
	resend(good, sent(1, 3), "taken", "before store started", "after store accepted", "before ack", "after ack", "taken, before store started, before ack")
	report(good, interrupted(0, 0), "after store started", "before call", "before call, before store uncertain", "before call, after store uncertain", "before call, buried")
	resend(good, again(1, 3), "after store started", "before call", "before call, before call")
	report(good, interrupted(1, 3), "answer", "before store accepted", "answer, before ack")
	resend(good, again(2, 6), "answer", "before store accepted", "before call, answer, after store accepted")
	resend(good, again(3, 9), "answer, answer")

	late := sandbox.Fault{Kind: sandbox.DelayAnswer, Delay: sandbox.Duration(time.Hour), Times: 1}
	report(late, interrupted(1, 3), inCall)
	resend(late, again(2, 6), inCall)

	refused := ends{state: messages.Failed, reason: messages.ReasonRefused, calls: 1}
	no := sandbox.Fault{Kind: sandbox.Status, Status: 422}
	report(no, refused, "after store failed", "buried", "before ack", "after ack")
	report(no, interrupted(1, 0), "answer", "before store failed")
	refused.calls, refused.again = 2, true
	resend(no, refused, "answer", "before store failed")

	unheard := ends{state: messages.Uncertain, reason: messages.ReasonNoAnswer, calls: 1}
	cut, took := sandbox.Fault{Kind: sandbox.Cut, Times: 1}, sandbox.Fault{Kind: sandbox.AcceptCut, Times: 1}
	report(cut, interrupted(1, 0), "answer", "before store uncertain")
	report(took, interrupted(1, 3), "before store uncertain")
	report(cut, unheard, "after store uncertain", "buried", "before ack")
	resend(cut, again(2, 3), "answer", "before call@2", "after store accepted")
	resend(cut, again(3, 6), "answer@2")
	resend(took, again(2, 6), "answer", "before call@2")

	busy := sandbox.Fault{Kind: sandbox.Status, Status: 503, Times: 2}
	report(busy, sent(3, 3), "after store deferred", "before store started@2")
	resend(busy, sent(3, 3), "after store deferred", "before store started@2")
	report(busy, interrupted(1, 0), "answer")
	report(busy, interrupted(2, 0), "before store deferred", "after store started@2", "before call@3")
	resend(busy, again(3, 3), "answer", "before store deferred", "after store started@2", "before call@3")

	short := sandbox.Fault{Kind: sandbox.Short, Times: 1}
	report(short, ends{state: messages.Partial, calls: 1, done: 1}, "after store partial", "before ack")
	report(short, interrupted(1, 1), "before store partial")

	matrix(t, rows, held)
}

func sending(body map[string]any, f sandbox.Fault, want ends, die ...string) row {
	if f.Kind != "" {
		f.Operation = "send"
	}
	return row{operation: messages.Send, body: body, upstream: f, die: die, want: want}
}
