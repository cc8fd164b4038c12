//go:build unix

package e2e

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"errand/internal/bus"
	"errand/internal/sandbox"
	"errand/pkg/messages"
)

// Bad input is told once and has one dead letter, wherever its worker dies; nothing is
// called for it.
func TestBadInputOutlivesEveryDeath(t *testing.T) {
	failed := func(reason messages.Reason) ends { return ends{state: messages.Failed, reason: reason} }
	invalid, conflict := failed(messages.ReasonInvalidRequest), failed(messages.ReasonConflict)
	conflict.calls, conflict.done = 1, 1 // of the first request
	places := []string{"taken", "before store failed", "after store failed", "buried", "before ack", "after ack"}
	nobody := message("r1", 0)
	nobody["to"] = []string{"no address"}
	matrix(t, []row{
		{operation: messages.Enroll, body: []byte("{"), id: bus.MandateRequests + "-1", want: invalid,
			die: append(places, "after store failed, buried, before ack", "taken, before store failed, after ack")},
		{operation: messages.Enroll, body: enrollment("r1", "amuont", "5"), want: invalid, die: places[1:4]},
		{operation: messages.Enroll, body: enrollment("r1", "application_reason", "another"), first: []any{enrollment("r1")},
			id: bus.MandateRequests + "-2", want: conflict, die: places},
		{operation: messages.Send, body: []byte("nope"), id: bus.MailRequests + "-1", want: invalid, die: places},
		{operation: messages.Send, body: nobody, want: invalid, die: places[1:4]},
		{operation: messages.Transactions, body: map[string]any{"page": 1, "request_id": "r1"}, want: invalid, die: places[1:4]},
		{operation: messages.Account, body: map[string]any{"account": 1, "request_id": "r1"}, want: invalid, die: places[1:4]},
	}, held)
}

// A read is made again after a death, until its outcome is stored; of each page of a
// listing the last event counts.
func TestReadsOutliveEveryDeath(t *testing.T) {
	const records = 26 // one more than a page of the sandbox holds
	var before []any
	for i := range records {
		before = append(before, enrollment(fmt.Sprint("e", i)))
	}
	ask := map[string]any{"request_id": "r1"}
	var rows []row
	add := func(op messages.Operation, f sandbox.Fault, want ends, die ...string) {
		r := row{operation: op, body: ask, upstream: f, want: want, die: die}
		if op == messages.Transactions {
			r.first = before
		}
		rows = append(rows, r)
	}
	no := unprocessable
	no.Operation = "*"

	listed := func(calls int64) ends { return ends{state: messages.Listed, calls: calls, done: records} }
	add(messages.Transactions, good, listed(2), "taken", "after store listed", "before ack", "after ack")
	add(messages.Transactions, good, listed(3), "before store page", "after store page")
	add(messages.Transactions, good, listed(4), "before store page@2", "after store page@2", "before store listed")
	add(messages.Transactions, good, listed(6), "after store page@2, before store listed")
	add(messages.Transactions, no, refused(2), "before store failed")
	add(messages.Transactions, no, refused(1), "after store failed", "buried")

	reported := func(calls int64) ends { return ends{state: messages.Reported, calls: calls} }
	add(messages.Account, good, reported(1), "taken", "after store reported", "before ack", "after ack")
	add(messages.Account, good, reported(2), "before store reported")
	add(messages.Account, no, refused(2), "before store failed")
	add(messages.Account, no, refused(1), "after store failed", "buried")

	matrix(t, rows, func(c *cell) {
		held(c)
		if c.want.state != messages.Listed {
			return
		}
		got := map[int]int{} // records by page
		for _, e := range c.told("mandate.transactions.page.r1") {
			got[number(e.Body["page"])] = len(decode[messages.TransactionsPage](t, e).Records)
		}
		if diff := cmp.Diff(map[int]int{1: 25, 2: 1}, got); diff != "" {
			c.t.Errorf("records by page (-want +got):\n%s%s", diff, c.story())
		}
	})
}
