package sandbox

import (
	"testing"
	"testing/synctest"
	"time"
)

// The oracle lists every row that the pages showed, and when each of its states began.
func TestTheOracleKnowsEveryRowAndItsStates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSandbox(t, strictOptions())
		begin := time.Now().UTC()
		set(t, s, func(v *Settings) {
			v.LogDelay, v.LogSpread, v.DeferredFor = Duration(time.Second), Duration(9*time.Second), Duration(time.Minute)
		})
		send(t, s, "Notice", "a@example.test", "defer@example.test", "bounce@example.test")
		equal(t, "nothing yet", len(s.Oracle(Query{Log: true}).Log), 0)
		time.Sleep(10 * time.Second)
		insert(t, s, `{"to":"else@example.test","envelope_id":"e1"}`)
		after := func(d time.Duration) string { return begin.Add(d).Format(time.RFC3339) }
		row := func(r LogRow) []any {
			values := []any{r.To, r.EnteredAt.Format(time.RFC3339)}
			for _, state := range r.States {
				values = append(values, state.State, state.Since.Format(time.RFC3339))
			}
			return values
		}
		rows := s.Oracle(Query{Log: true}).Log
		equal(t, "rows", len(rows), 4)
		equal(t, "delivered", row(rows[0]), []any{"a@example.test", after(time.Second), "delivered", after(time.Second)})
		equal(t, "deferred as yet", row(rows[1]), []any{"defer@example.test", after(4 * time.Second), "deferred", after(4 * time.Second)})
		equal(t, "bounced", row(rows[2]), []any{"bounce@example.test", after(7 * time.Second), "bounced", after(7 * time.Second)})
		equal(t, "inserted", row(rows[3]), []any{"else@example.test", after(10 * time.Second)})
		time.Sleep(54 * time.Second)
		rows = s.Oracle(Query{Log: true}).Log
		equal(t, "no longer deferred", row(rows[1]), []any{"defer@example.test", after(4 * time.Second), "deferred", after(4 * time.Second),
			"delivered", after(64 * time.Second)})

		set(t, s, func(v *Settings) { v.LogLosses = 1 })
		shown := tos(t, logs(t, s, ""))
		set(t, s, func(v *Settings) { v.LogLosses = 0 })
		left := 0
		for _, r := range s.Oracle(Query{Log: true}).Log {
			if r.LeftAt == nil {
				continue
			}
			left++
			equal(t, "left", r.LeftAt.Format(time.RFC3339), after(64*time.Second))
			for _, to := range shown {
				if to == r.To {
					t.Errorf("%s left the log and is on its page", to)
				}
			}
		}
		equal(t, "rows that left, and are shown", []any{left, len(shown)}, []any{1, 3})
	})
}

// The oracle lists every record, and when the list began to show each of its states; a decision
// may be listed after the payer made it.
func TestTheOracleKnowsEveryRecordAndItsStates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSandbox(t, strictOptions())
		set(t, s, func(v *Settings) { v.ListDelay = Duration(20 * time.Second) })
		begin := time.Now()
		for _, order := range []string{"DD1", "DD2", "DD3", "DD4"} {
			must(t, s, "POST", "/v3/mandates", enrollment1().with("order_number", order).String())
		}
		time.Sleep(time.Minute)
		for order, decision := range map[string]string{"DD1": Approve, "DD2": Decline, "DD3": Expire} {
			if err := s.Decide(order, decision); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(19 * time.Second)
		equal(t, "not listed yet", recordsOf(t, s, "?status=0"), []string{"DD4 Enrollment New DD4", "DD2 Enrollment New DD2",
			"DD1 Enrollment New DD1"})
		equal(t, "nor the mandate", dig(t, list(t, s, "?order_number=DD1"), "data", 0, "mandate", "status_description"), "New")
		equal(t, "decided all the same", s.Decide("DD1", Decline), ErrDecided)
		time.Sleep(2 * time.Hour)
		if _, _, err := s.Cycle("DD1"); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range s.Oracle(Query{Records: true}).Records {
			line := r.ID + " " + r.Type + " " + r.OrderNumber
			for _, state := range r.States {
				line += " " + state.State + " " + state.Since.Sub(begin).String()
			}
			got = append(got, line)
		}
		equal(t, "records", got, []string{"TXN00000001 Enrollment DD1 New 0s Approved 1m20s", "TXN00000002 Enrollment DD2 New 0s Failed 1m20s",
			"TXN00000003 Enrollment DD3 New 0s Expired 1m0s", "TXN00000004 Enrollment DD4 New 0s Expired 1h0m0s",
			"TXND00000001 Deduction DD1 Failed 2h1m19s"})
	})
}

// insert adds a row of another program to the log.
func insert(t *testing.T, s *Sandbox, row string) {
	t.Helper()
	if err := s.InsertLog([]byte(row)); err != nil {
		t.Fatal(err)
	}
}
