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
		must(t, s, "POST", "/_sandbox/log", `{"to":"else@example.test","envelope_id":"e1"}`)
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
		equal(t, "deferred no more", row(rows[1]), []any{"defer@example.test", after(4 * time.Second), "deferred", after(4 * time.Second), "delivered", after(64 * time.Second)})

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
		got := must(t, s, "GET", "/_sandbox/oracle?log=1", "")
		equal(t, "over HTTP", []any{len(got["log"].([]any)), dig(t, got, "log", 0, "states", 0, "state")}, []any{4, "delivered"})
		if _, listed := must(t, s, "GET", "/_sandbox/oracle", "")["log"]; listed {
			t.Error("the oracle lists the log without being asked")
		}
	})
}
