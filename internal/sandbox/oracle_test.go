package sandbox

import (
	"fmt"
	"sync"
	"testing"
)

func TestTheOracleCountsWhatWasDoneTwice(t *testing.T) {
	s := newSandbox(t, strictOptions())
	for _, order := range []string{"DD1", "DD2", "DD1", "DD3", "DD1"} {
		must(t, s, "POST", "/v3/mandates", enrollment1().with("order_number", order).String())
	}
	send(t, s, "one", "a@example.test", "b@example.test")
	send(t, s, "one", "b@EXAMPLE.test", "B@example.test")
	send(t, s, "two", "a@example.test", "c@example.test", "c@example.test")
	ask(t, s, "POST", "/v3/mandates", "{}")
	ask(t, s, "POST", "/api/v0/messages", "{}")

	got := must(t, s, "GET", "/_sandbox/oracle", "")
	equal(t, "calls", got["calls"], map[string]any{"enroll": 6, "transactions": 0, "send": 4, "logs": 0, "account": 0})
	enroll := got["enroll"]
	equal(t, "enrollments", []any{dig(t, enroll, "accepted"), dig(t, enroll, "refused"), dig(t, enroll, "orders"),
		dig(t, enroll, "twice_count")}, []any{5, 1, 3, 1})
	equal(t, "orders twice", dig(t, enroll, "twice"), map[string]any{"DD1": 3})
	equal(t, "by order", dig(t, enroll, "by_order"), map[string]any{"DD1": 3, "DD2": 1, "DD3": 1})
	mail := got["mail"]
	equal(t, "mail", []any{dig(t, mail, "accepted"), dig(t, mail, "refused"), dig(t, mail, "recipients"), dig(t, mail, "distinct"),
		dig(t, mail, "largest"), dig(t, mail, "twice_count")}, []any{3, 1, 7, 5, 3, 2})
	m := s.Oracle(Query{}).Mail
	equal(t, "recipients twice", m.Twice, []Received{{"one", "b@example.test", 2}, {"two", "c@example.test", 2}})
	equal(t, "every pair", m.ByRecipient, []Received{{"one", "B@example.test", 1}, {"one", "a@example.test", 1},
		{"one", "b@example.test", 2}, {"two", "a@example.test", 1}, {"two", "c@example.test", 2}})
}

func TestASummaryHasNoLists(t *testing.T) {
	s := newSandbox(t, strictOptions())
	for _, order := range []string{"DD1", "DD2", "DD1"} {
		must(t, s, "POST", "/v3/mandates", enrollment1().with("order_number", order).String())
	}
	send(t, s, "one", "a@example.test", "b@example.test")
	send(t, s, "two", "a@example.test")
	send(t, s, "two", "a@example.test")

	got := must(t, s, "GET", "/_sandbox/oracle?summary=1", "")
	equal(t, "summary", []any{dig(t, got, "enroll", "by_order"), dig(t, got, "mail", "by_recipient"), dig(t, got, "enroll", "twice_count"),
		dig(t, got, "mail", "twice_count")}, []any{nil, nil, 1, 1})
}

func TestCountsHoldUnderManyCallersAtOnce(t *testing.T) {
	s := instant(t, newSandbox(t, strictOptions()))
	var all sync.WaitGroup
	for worker := range 8 {
		all.Go(func() {
			for i := range 20 {
				do(s, request("POST", "/v3/mandates", enrollment1().with("order_number", fmt.Sprintf("DD%d", i)).String()))
				do(s, request("POST", "/api/v0/messages", message1().with("to", many(20)).with("subject", fmt.Sprintf("s%d-%d", worker, i)).String()))
				do(s, request("GET", "/api/v0/logs", ""))
				do(s, request("GET", "/v3/mandates/transactions", ""))
				do(s, request("GET", "/", ""))
				do(s, request("GET", "/mail", ""))
				s.Oracle(Query{})
			}
		})
	}
	all.Wait()
	o := s.Oracle(Query{})
	equal(t, "enrollments", []any{o.Enroll.Accepted, o.Enroll.Orders, o.Enroll.TwiceCount, o.Enroll.Twice["DD7"]}, []int{160, 20, 20, 8})
	equal(t, "recipients", []any{o.Mail.Recipients, o.Mail.Distinct, o.Mail.TwiceCount}, []int{3200, 3200, 0})
	equal(t, "logged", logs(t, s, "")["total_record"], 3200)
}
