//go:build unix

package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"errand/internal/sandbox"
	"errand/pkg/messages"
)

func (e event) state() messages.State { return messages.StateOf(e.Subject) }

// id is what follows the state in the subject: a request id, or <request id>.<n>.
func (e event) id() string { return strings.SplitN(e.Subject, ".", 4)[3] }

func (e event) operation() messages.Operation {
	tokens := strings.SplitN(e.Subject, ".", 3)
	return messages.Operation(tokens[0] + "." + tokens[1])
}

func (e event) final() bool { return e.state().Final(e.operation()) }

// decode reads an event's body into the struct that the contract has for it.
func decode[B any](t *testing.T, e event) (body B) {
	t.Helper()
	if err := json.Unmarshal([]byte(e.Raw), &body); err != nil {
		t.Fatalf("%s: %v: %s", e.Subject, err, e.Raw)
	}
	return body
}

// logRow is what a row of the sending log is known by.
type logRow struct {
	EnvelopeID string `json:"envelope_id"`
	To, From   string
}

// rowOf is the row that a delivery event tells of.
func rowOf(t *testing.T, e event) logRow {
	t.Helper()
	return decode[struct{ Entry logRow }](t, e).Entry
}

// insertRow puts a row into the sending log.
func insertRow(t *testing.T, box *sandbox.Sandbox, row map[string]any) {
	t.Helper()
	text, err := json.Marshal(row)
	if err == nil {
		err = box.InsertLog(text, false)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// histories gives every event under a filter by what it is about, in the order in
// which they were stored.
func (in *installation) histories(filter string) map[string][]event {
	in.t.Helper()
	out := map[string][]event{}
	for _, e := range in.told(filter) {
		out[e.id()] = append(out[e.id()], e)
	}
	return out
}

// end gives the one final event of a history; the error says that there is none, or
// more than one, or something after it. What becomes known later of one that ended as
// uncertain is left out.
func end(history []event) (event, error) {
	if n := len(history); n > 1 && history[n-1].state() == messages.Resolved && history[n-2].state() == messages.Uncertain {
		history = history[:n-1]
	}
	var states []messages.State
	ends := 0
	for _, e := range history {
		states = append(states, e.state())
		if e.final() {
			ends++
		}
	}
	if ends != 1 || !history[len(history)-1].final() {
		return event{}, fmt.Errorf("%d final events, want one and nothing after it: %v", ends, states)
	}
	return history[len(history)-1], nil
}

// oneEnd fails unless the history under filter has exactly one final event, the last.
func (in *installation) oneEnd(filter string) event {
	in.t.Helper()
	e, err := end(in.told(filter))
	if err != nil {
		in.t.Fatalf("%s: %v\n%s", filter, err, in.last())
	}
	return e
}

// served is how often the sandbox took each recipient of the messages made by message,
// by request and number.
func (in *installation) served(recipients int) map[string][]int {
	in.t.Helper()
	out := map[string][]int{}
	for _, r := range in.box.Oracle(sandbox.Query{}).Mail.ByRecipient {
		name, _, _ := strings.Cut(r.Recipient, "@")
		at := strings.LastIndexByte(name, '-')
		id, n := name[:at], 0
		if _, err := fmt.Sscan(name[at+1:], &n); err != nil || r.Subject != "story "+id {
			in.t.Fatalf("the sandbox served %s for %q", r.Recipient, r.Subject)
		}
		if out[id] == nil {
			out[id] = make([]int, recipients)
		}
		out[id][n] += r.Count
	}
	return out
}

// batchAgrees holds the end of a batch against how often each recipient of its request
// was served: accepted is the number told, refused is nobody, and uncertain is anything.
func batchAgrees(t *testing.T, e event, served []int) error {
	t.Helper()
	b := decode[messages.BatchBody](t, e)
	got := 0
	if served != nil {
		got = sum(served[b.First : b.First+b.Count])
	}
	switch state := e.state(); {
	case state == messages.Accepted && b.Accepted != nil && *b.Accepted == got:
	case state == messages.Refused && got == 0:
	case state == messages.Uncertain:
	default:
		return fmt.Errorf("batch is %s, %d of %d were served: %s", state, got, b.Count, e.Raw)
	}
	return nil
}

func sum(numbers []int) (total int) {
	for _, n := range numbers {
		total += n
	}
	return total
}
