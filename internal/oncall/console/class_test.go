package console

import (
	"testing"
	"time"

	"errand/internal/oncall/access"
	"errand/internal/oncall/act"
	"errand/internal/oncall/index"
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
		group     index.Class
		plan      act.Class
	}{
		"refused":   {"mandate.enroll", "failed", body{"reason": "refused"}, index.Safe, act.Safe},
		"behind":    {"mandate.enroll", "failed", body{"reason": "unavailable", "after_unknown": true}, index.Twice, act.Twice},
		"withdrawn": {"mandate.enroll", "failed", body{"reason": "cancelled"}, index.Cancelled, act.Cancelled},
		"unknown":   {"mandate.enroll", "uncertain", body{"reason": "no_answer", "evidence": []body{}}, index.Twice, act.Twice},
		"listed":    {"mandate.enroll", "uncertain", body{"reason": "no_answer", "evidence": records}, index.WasDone, act.WasDone},
		"odd": {"mandate.enroll", "uncertain", body{"reason": "no_answer", "evidence": []body{{"payer_email": 7}}}, index.WasDone,
			act.WasDone},
		"link":      {"mandate.enroll", "uncertain", body{"reason": "link_lost", "evidence": records}, index.WasDone, act.WasDone},
		"found":     {"mandate.enroll", "resolved", body{"outcome": "succeeded", "evidence": records}, index.WasDone, act.WasDone},
		"not-found": {"mandate.enroll", "resolved", body{"outcome": "failed", "evidence": []body{}}, index.Safe, act.Safe},
		"rejected":  {"mandate.enroll", "resolved", body{"outcome": "failed", "evidence": records}, index.WasDone, act.WasDone},
		"under-way": {"mandate.enroll", "started", body{}, index.Underway, act.Underway},
		"waits":     {"mail.send", "deferred", body{"reason": "busy"}, index.Underway, act.Underway},
		"partial": {"mail.send", "partial", body{"batches": 2, "unsettled": []body{{"batch": 2, "state": "refused"}}, "unsettled_count": 1},
			index.Safe, act.Safe},
		"mail": {"mail.send", "uncertain", body{"reason": "no_answer", "batches": 1, "unsettled": []body{{"batch": 1, "state": "uncertain"}},
			"unsettled_count": 1},
			index.Twice, act.Twice},
		"clash": {"mandate.enroll", "failed", body{"reason": "conflict", "conflicts_with": "other"}, index.CannotRun, act.Twice},
		"copy":  {"mandate.enroll", "failed", body{"reason": "invalid_request", "conflicts_with": "other"}, index.Safe, act.CannotRun},
	}
	for id, c := range cases {
		in.store(c.operation.Subject(messages.State(c.state), id), c.fields)
		in.store("dead."+c.operation.Requested(), body{}, "Errand-Request-Id", id)
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
		names[i] = bySequence(row.DeadLetter)
	}
	plan, err := in.planOf(t.Context(), access.User{Name: "ann"}, names)
	if err != nil || len(plan) != len(rows) {
		t.Fatalf("%d items for %d dead letters, %v", len(plan), len(rows), err)
	}
	for i, row := range rows {
		c := cases[row.RequestID]
		if row.RequestID == "expired" {
			c.group, c.plan = index.Twice, act.Twice
		}
		if group := row.Class(); group != c.group || plan[i].Class != c.plan || plan[i].RequestID != row.RequestID {
			t.Errorf("%s: the group says %s, want %s; the plan of %s %s, want %s (%s)", row.RequestID, group, c.group, plan[i].RequestID,
				plan[i].Class, c.plan, plan[i].Says)
		}
	}
}
