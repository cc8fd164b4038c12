package e2e

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"errand/internal/sandbox"
	"errand/pkg/messages"
)

// A read is made again after a crash, until its outcome is stored; of each page of a
// listing the last event counts.
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
