package sandbox

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// recordsOf are the records of the list under a query: order number, type, status, and the mandate's order number.
func recordsOf(t *testing.T, s *Sandbox, query string) (rows []string) {
	t.Helper()
	var page struct {
		Data []struct {
			ID      string `json:"id"`
			Order   string `json:"order_number"`
			Type    string `json:"transaction_type"`
			Status  string `json:"status_description"`
			Mandate struct {
				Order string `json:"order_number"`
			} `json:"mandate"`
		} `json:"data"`
		Meta struct{ Total int } `json:"meta"`
	}
	text, _ := json.Marshal(must(t, s, "GET", "/v3/mandates/transactions"+query, ""))
	if err := json.Unmarshal(text, &page); err != nil {
		t.Fatal(err)
	}
	ids := map[string]bool{}
	for _, r := range page.Data {
		rows = append(rows, strings.Join([]string{r.Order, r.Type, r.Status, r.Mandate.Order}, " "))
		ids[r.ID] = true
	}
	equal(t, "records with different ids", len(ids), len(rows))
	equal(t, "total", page.Meta.Total, len(rows))
	return rows
}

func TestACycleDeductsFromEachActiveMandate(t *testing.T) {
	s := newSandbox(t, strictOptions())
	for _, order := range []string{"DD1", "DD2", "DD3"} {
		must(t, s, "POST", "/v3/mandates", enrollment1().with("order_number", order).String())
	}
	for order, decision := range map[string]string{"DD1": Approve, "DD2": Approve, "DD3": Decline} {
		if err := s.Decide(order, decision); err != nil {
			t.Fatal(err)
		}
	}
	made, failed, err := s.Cycle("DD2")
	equal(t, "first cycle", []any{made, failed, err}, []any{2, 1, nil})
	if _, _, err := s.Cycle("DD3"); err == nil {
		t.Error("a deduction from a mandate that is not active")
	}
	must(t, s, "POST", "/_sandbox/cycle", "")
	equal(t, "list", recordsOf(t, s, ""), []string{
		"DD2-2 Deduction Approved DD2", "DD1-2 Deduction Approved DD1", "DD2-1 Deduction Failed DD2", "DD1-1 Deduction Approved DD1",
		"DD3 Enrollment Failed DD3", "DD2 Enrollment Approved DD2", "DD1 Enrollment Approved DD1"})
	equal(t, "of an order number", recordsOf(t, s, "?order_number=DD2"), []string{
		"DD2-2 Deduction Approved DD2", "DD2-1 Deduction Failed DD2", "DD2 Enrollment Approved DD2"})
	equal(t, "of a status", recordsOf(t, s, "?status=2"), []string{"DD2-1 Deduction Failed DD2", "DD3 Enrollment Failed DD3"})
	o := s.Oracle(Query{}).Enroll
	equal(t, "oracle", []map[string]int{o.States, o.Deductions}, []map[string]int{{"Approved": 2, "Failed": 1}, {"Approved": 3, "Failed": 1}})
	status, _ := ask(t, s, "POST", "/_sandbox/cycle", `{"bounced":["nobody"]}`)
	equal(t, "an unknown order number", status, 400)
}

func TestCallbacksMisbehaveAsTheyAreTold(t *testing.T) {
	for name, c := range map[string]struct {
		set  func(*Settings)
		want []string
	}{
		"twice": {func(v *Settings) { v.CallbackCopies = 2 }, []string{"authorization Approved", "authorization Approved", "bank_approval ",
			"bank_approval "}},
		"never":  {func(v *Settings) { v.CallbackLost = 1 }, nil},
		"forged": {func(v *Settings) { v.CallbackForged = 1 }, []string{"authorization Failed", "authorization Approved", "bank_approval "}},
	} {
		synctest.Test(t, func(t *testing.T) {
			m := &merchant{}
			o := strictOptions()
			o.Callbacks = m
			s := New(o)
			defer s.Close()
			if err := s.Set(c.set); err != nil {
				t.Fatal(err)
			}
			must(t, s, "POST", "/v3/mandates", enrollment1().with("return_url", "http://localhost/cb").String())
			if err := s.Decide("DD1", Approve); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Hour)
			synctest.Wait() // what the sender of callbacks wrote may be read after it
			var got []string
			for _, r := range m.records {
				got = append(got, r["record_type"]+" "+r["status_description"])
			}
			equal(t, name, got, c.want)
			if name == "forged" && (m.records[0]["checksum"] == m.records[1]["checksum"] || len(m.records[0]["checksum"]) != 64) {
				t.Errorf("the forged one is signed %q", m.records[0]["checksum"])
			}
		})
	}
}

func TestAMandateEndsAndIsResumed(t *testing.T) {
	s := newSandbox(t, strictOptions())
	must(t, s, "POST", "/v3/mandates", enrollment1().with("order_number", "DD1").String())
	for i, c := range []struct {
		decision string
		ok       bool
		made     int // deductions after it
	}{{End, false, 0}, {Approve, true, 1}, {Resume, false, 1}, {End, true, 0}, {End, false, 0}, {Resume, true, 1}, {Resume, false, 1}} {
		err := s.Decide("DD1", c.decision)
		made, _, _ := s.Cycle()
		equal(t, fmt.Sprint(i, " ", c.decision), []any{err == nil, made}, []any{c.ok, c.made})
	}
}
