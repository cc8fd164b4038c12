package transactions

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"errand/internal/lists/sweep"
	"errand/pkg/messages"
)

// record is an application in a state, with a mandate in another.
func record(status, mandate int) json.RawMessage {
	return fmt.Appendf(nil, `{"id":"1","status":%d,"status_description":"S%[1]d","mandate":{"status":%d,"status_description":"M%[2]d"}}`,
		status, mandate)
}

// show is what a reading that shows a record now makes of it. published: it was not before, and is now.
func show(l *List, raw json.RawMessage) (id sweep.ID, published bool) {
	row := l.rows([]json.RawMessage{raw}, time.Now(), "")[0]
	l.states.note(row.ID, sweep.ID{})
	return row.ID, row.Before != row.ID
}

func TestAMandateThatEndsAndAStateThatReturnsAreStates(t *testing.T) {
	l, seen := New(Config{Times: inUTC}), map[sweep.ID]bool{}
	for i, raw := range []json.RawMessage{record(3, 3), record(3, 4), record(3, 3), record(6, 3), record(3, 3), record(3, 4)} {
		id, changed := show(l, raw)
		if seen[id] || changed != (i > 0) {
			t.Errorf("%s: %x, which is a change: %t, of %d states", raw, id, changed, len(seen))
		}
		seen[id] = true
		if again, changed := show(l, raw); again != id || changed {
			t.Errorf("%s shown again: %x, which is a change: %t", raw, again, changed)
		}
		var stored []sweep.ID
		for id := range seen {
			stored = append(stored, id)
		}
		restarted := New(Config{Times: inUTC}) // what was erased comes in any order
		for _, id := range stored {
			restarted.states.note(id, sweep.ID{})
		}
		if again, changed := show(restarted, raw); again != id || changed {
			t.Errorf("%s after a restart: %x, want %x", raw, again, id)
		}
	}
}

func TestCodesAreTheStateBeforeTheirWording(t *testing.T) {
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{`{"id":"1","status":3,"status_description":"Approved"}`, `{"id":"1","status":"3","status_description":"Diluluskan"}`, true},
		{`{"id":"1","status":3,"status_description":"Approved"}`, `{"id":"1","status":2,"status_description":"Approved"}`, false},
		{`{"id":"1","status_description":"Approved"}`, `{"id":"1","status_description":" APPROVED! "}`, true},
		{`{"id":"1","status_description":"Approved"}`, `{"id":"1","status_description":"Failed"}`, false},
		{`{"id":"1","status":1,"mandate":{"status":3}}`, `{"id":"1","status":3,"mandate":{"status":1}}`, false},
		{`{"id":"1","mandate":{"status_description":"Active"}}`, `{"id":"1","mandate":{"status_description":"Terminated"}}`, false},
	} {
		if got := read(json.RawMessage(c.a), inUTC).state == read(json.RawMessage(c.b), inUTC).state; got != c.same {
			t.Errorf("%s and %s are the same state: %t", c.a, c.b, got)
		}
	}
}

// A reading that was asked for before a change was seen may show the state before it.
func TestAnOlderReadingBringsNoStateBack(t *testing.T) {
	l := New(Config{Times: inUTC})
	show(l, record(1, 0))
	asked := time.Now()
	changed, _ := show(l, record(3, 3))
	if older := l.rows([]json.RawMessage{record(1, 0)}, asked, "")[0]; older.ID != changed {
		t.Errorf("the older reading shows %x, want %x", older.ID, changed)
	}
	row := l.rows([]json.RawMessage{record(1, 0)}, time.Now(), "")[0]
	show(l, record(6, 3)) // before the row is published
	if row.ID == changed || l.states.isNext(row) {
		t.Errorf("a later reading shows %x, and follows the state that came meanwhile", row.ID)
	}
}

// What a callback had looked up may be younger than what the list shows for a while, on pages that were asked for later.
func TestAListThatIsLateBringsNoStateBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stored := 0
		s := &stream{matched: func(messages.Event) {}, published: func(messages.Event) { stored++ }}
		l := New(Config{Times: inUTC, Store: s.poller(-1, nil), Published: func(messages.TransactionKind, messages.Confidence) {}})
		err := errors.Join(l.Lead(t.Context()), l.Learn(t.Context(), func(sweep.Stored) {}))
		shows := func(by messages.TransactionBy, raw json.RawMessage, want int) {
			t.Helper()
			if rows := l.rows([]json.RawMessage{raw}, time.Now(), by); rows[0].Before != rows[0].ID || stored == 0 {
				_, published := l.Publish(t.Context(), rows)()
				err = errors.Join(err, published)
			}
			if err != nil || stored != want {
				t.Errorf("%s: %d events, want %d: %v", raw, stored, want, err)
			}
		}
		shows("", record(1, 0), 1)
		time.Sleep(time.Hour)
		shows(messages.ByCallback, record(3, 3), 2)
		time.Sleep(30 * time.Second)
		shows("", record(1, 0), 2)
		time.Sleep(31 * time.Second)
		shows("", record(3, 3), 2)
		shows("", record(1, 0), 3) // it has returned
		shows("", record(3, 3), 4) // and so has this, which nothing is ahead of
	})
}

// A copy of the stream was restored that lacks the last state of a record: that state is a change again.
func TestAChangeThatARestoreLostIsAChange(t *testing.T) {
	l := New(Config{Times: inUTC})
	before, _ := show(l, record(1, 1)) // kept
	show(l, record(3, 3))              // lost by the restore
	l.forget()
	l.states.note(before, sweep.ID{})
	if after, change := show(l, record(3, 3)); !change || after == before {
		t.Errorf("it is %x, as before %x", after, before)
	}
}
