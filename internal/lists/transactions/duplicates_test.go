package transactions

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"errand/internal/history"
	"errand/pkg/messages"
)

func TestASecondApplicationOfARequestIsReportedOnce(t *testing.T) {
	record := func(id, kind string, status int) json.RawMessage {
		return fmt.Appendf(nil, `{"id":%q,"transaction_type":%q,"order_number":"DD1","status":%d}`, id, kind, status)
	}
	one, two := record("1", "Enrollment", 0), record("2", "Enrollment", 0)
	for _, c := range []struct {
		what         string
		records      [][]json.RawMessage // of one publication each
		restarts     bool                // between them
		withoutPayer bool
		want         []string
	}{
		{"one in two states", [][]json.RawMessage{{one}, {record("1", "Enrollment", 3)}}, false, false, nil},
		{"one in two states, after a restart", [][]json.RawMessage{{one}, {record("1", "Enrollment", 3)}}, true, true, nil},
		{"two at once", [][]json.RawMessage{{one, two}}, false, false, []string{"r1"}},
		{"two, and their states", [][]json.RawMessage{{one}, {two}, {record("1", "Enrollment", 3)}, {record("2", "Enrollment", 3)}}, false, false,
			[]string{"r1"}},
		{"two, after a restart", [][]json.RawMessage{{one}, {record("1", "Enrollment", 1)}, {two}}, true, true, []string{"r1"}},
		{"the end of its mandate", [][]json.RawMessage{{one}, {record("2", "Termination", 0)}}, false, false, nil},
		{"the end of its mandate, after a restart", [][]json.RawMessage{{one}, {record("2", "Termination", 0)}}, true, true, nil},
		{"deductions", [][]json.RawMessage{{one}, {record("2", "Deduction", 3), record("3", "Deduction", 3)}}, false, false, nil},
	} {
		var got []string
		var stored history.Entry
		e := &enrollments{}
		e.start("r1", "DD1")
		config := Config{Store: e, Times: local, WithoutPayer: c.withoutPayer, Duplicate: func(id string) { got = append(got, id) },
			Published: func(messages.TransactionKind, messages.Confidence) {},
			Last:      func(context.Context, messages.Operation, string) (history.Entry, error) { return stored, nil }}
		l := New(config)
		for _, records := range c.records {
			if c.restarts {
				e.given = 0
				l = New(config)
			}
			rows := l.rows(records, time.Now(), "")
			if n, err := l.Publish(t.Context(), rows)(); err != nil || n != len(rows) {
				t.Fatal(n, err)
			}
			var err error
			if stored.Body, err = e.published.Encode(); err != nil {
				t.Fatal(err)
			}
			stored.Sequence++
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", c.what, got, c.want)
		}
	}
}
