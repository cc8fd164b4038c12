package console

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"errand/internal/bus"
	"errand/internal/oncall/access"
	"errand/internal/oncall/index"
	"errand/internal/oncall/inspect"
	"errand/pkg/messages"
)

// A group of dead letters is by the last event of each alone, a plan by the whole history. They
// say the same but of what may not be run, or conflicts: there the plan knows more.
func TestAGroupOfDeadLettersSaysWhatItsPlanSays(t *testing.T) {
	t.Parallel()
	in := installed(t)
	records := []body{{"order_number": "DD1"}}
	cases := map[string]struct {
		operation messages.Operation
		state     string
		fields    body
		group     inspect.Class
		plan      inspect.Class
	}{
		"refused": {"mandate.enroll", "failed", body{"reason": "refused"}, inspect.Safe, inspect.Safe},
		"invalid": {"mandate.enroll", "failed", body{"reason": "invalid_request"}, inspect.FailsAgain,
			inspect.FailsAgain},
		"behind":    {"mandate.enroll", "failed", body{"reason": "unavailable", "after_unknown": true}, inspect.Twice, inspect.Twice},
		"withdrawn": {"mandate.enroll", "failed", body{"reason": "cancelled"}, inspect.Cancelled, inspect.Cancelled},
		"unknown":   {"mandate.enroll", "uncertain", body{"reason": "no_answer", "evidence": []body{}}, inspect.Twice, inspect.Twice},
		"listed":    {"mandate.enroll", "uncertain", body{"reason": "no_answer", "evidence": records}, inspect.WasDone, inspect.WasDone},
		"odd": {"mandate.enroll", "uncertain", body{"reason": "no_answer", "evidence": []body{{"payer_email": 7}}}, inspect.WasDone,
			inspect.WasDone},
		"link":      {"mandate.enroll", "uncertain", body{"reason": "link_lost", "evidence": records}, inspect.WasDone, inspect.WasDone},
		"found":     {"mandate.enroll", "resolved", body{"outcome": "succeeded", "evidence": records}, inspect.WasDone, inspect.WasDone},
		"not-found": {"mandate.enroll", "resolved", body{"outcome": "failed", "evidence": []body{}}, inspect.Safe, inspect.Safe},
		"rejected":  {"mandate.enroll", "resolved", body{"outcome": "failed", "evidence": records}, inspect.WasDone, inspect.WasDone},
		"under-way": {"mandate.enroll", "started", body{}, inspect.Underway, inspect.Underway},
		"waits":     {"mail.send", "deferred", body{"reason": "busy"}, inspect.Underway, inspect.Underway},
		"partial": {"mail.send", "partial", body{"batches": 2, "unsettled": []body{{"batch": 2, "state": "refused"}}, "unsettled_count": 1},
			inspect.Safe, inspect.Safe},
		"mail": {"mail.send", "uncertain", body{"reason": "no_answer", "batches": 1, "unsettled": []body{{"batch": 1, "state": "uncertain"}},
			"unsettled_count": 1},
			inspect.Twice, inspect.Twice},
		"clash": {"mandate.enroll", "failed", body{"reason": "conflict", "conflicts_with": "other"}, inspect.CannotRun, inspect.Twice},
		"copy":  {"mandate.enroll", "failed", body{"reason": "invalid_request", "conflicts_with": "other"}, inspect.CannotRun, inspect.CannotRun},
	}
	in.begun("partial", 2, body{})
	for id, c := range cases {
		sequence := in.store(c.operation.Subject(messages.State(c.state), id), c.fields)
		in.store("dead."+c.operation.Requested(), body{}, "Errand-Request-Id", id,
			nats.MsgIdHdr, bus.DeadLetterID(c.operation, id, sequence))
	}
	in.store("dead.mandate.enroll.requested", body{}, "Errand-Request-Id", "expired")
	asked := time.Now()
	in.until("the index to be current", func() bool { return in.index.Lag().Current.After(asked) })
	found, err := in.index.Requests(t.Context(), index.Filter{Dead: true})
	if err != nil || len(found.Rows) != len(cases)+1 {
		t.Fatalf("%d dead letters, want %d; %v", len(found.Rows), len(cases)+1, err)
	}
	rows, names := found.Rows, make([]string, len(found.Rows))
	for i, row := range rows {
		names[i] = inspect.Name(row.DeadLetter)
	}
	person, err := in.person(access.User{Name: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	plan, err := planOf(t.Context(), person.Requests(), names)
	if err != nil || len(plan) != len(rows) {
		t.Fatalf("%d items for %d dead letters, %v", len(plan), len(rows), err)
	}
	for i, row := range rows {
		c := cases[row.RequestID]
		if row.RequestID == "expired" {
			c.group, c.plan = inspect.Twice, inspect.Twice
		}
		if group := row.Class; group != c.group || plan[i].Class != c.plan || plan[i].RequestID != row.RequestID {
			t.Errorf("%s: the group says %s, want %s; the plan of %s %s, want %s (%s)", row.RequestID, group, c.group, plan[i].RequestID,
				plan[i].Class, c.plan, plan[i].Says)
		}
	}
}
