package e2e

import (
	"testing"

	"errand/internal/bus"
	"errand/pkg/messages"
)

// Bad input is reported once and has one dead letter, wherever its worker dies; nothing is
// called for it.
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
