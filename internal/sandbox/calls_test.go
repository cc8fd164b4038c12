package sandbox

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestAPageElsewhereReadsNoCalls(t *testing.T) {
	s := newSandbox(t, strictOptions())
	equal(t, "a name that points here", do(s, httptest.NewRequest("GET", "http://evil.test/calls", nil)).Code, http.StatusForbidden)
}

// What arrived is shown with what became of it, the newest first, and without credentials.
func TestTheCallsAreShownWithWhatBecameOfThem(t *testing.T) {
	s := instant(t, newSandbox(t, strictOptions()))
	must(t, s, "POST", "/v3/mandates", enrollment1().String())
	do(s, request("POST", "/v3/mandates", enrollment1().with("amount", "1").with("order_number", "DD2").String()))
	addFault(t, s, Fault{Operation: "enroll", Kind: Status, Status: http.StatusServiceUnavailable, Times: 1})
	do(s, request("POST", "/v3/mandates", enrollment1().with("order_number", "DD3").String()))
	addFault(t, s, Fault{Operation: "enroll", Kind: Garbage, Times: 1})
	do(s, request("POST", "/v3/mandates", enrollment1().with("order_number", "DD4").String()))
	equal(t, "counts", s.journal.tallies()[opEnroll], tally{Calls: 4, Accepted: 2, Refused: 1, Failed: 2})
	text := do(s, httptest.NewRequest("GET", "http://127.0.0.1/calls", nil)).Body.String()
	at := 0
	for _, want := range []string{"DD4", "done, the answer was unreadable", "DD3", "not done, answered Service Unavailable", "DD2",
		"refused: Unprocessable Entity", "DD1", "accepted"} {
		i := strings.Index(text[at:], want)
		if i < 0 {
			t.Fatalf("no %q there:\n%s", want, text[at:])
		}
		at += i
	}
	if key := strictOptions().PortalKey; strings.Contains(text, key) {
		t.Errorf("the page has the portal key:\n%s", text)
	}
	for _, want := range []string{"<dd>2 <small>2 enrollments of 2 order numbers", "<dd>1 <small>1 enrollments, 0 messages</small>",
		"<dd>2 <small>2 enrollments, 0 messages; faults fired 2 times"} {
		if index := page(t, s, "/"); !strings.Contains(index, want) {
			t.Errorf("the index lacks %q:\n%s", want, index)
		}
	}
}

func TestOnlyTheLastCallsAreKept(t *testing.T) {
	s := newSandbox(t, strictOptions())
	for n := range callsKept + 10 {
		list(t, s, fmt.Sprint("?order_number=DD", n))
	}
	views := s.journal.views(callsKept+10, s.zone, true)
	equal(t, "kept", len(views), callsKept)
	equal(t, "first and last", []string{views[0].Name, views[callsKept-1].Name},
		[]string{fmt.Sprint("order_number=DD", callsKept+9), "order_number=DD10"})
	equal(t, "counted", s.journal.tallies()[opTransactions].Accepted, callsKept+10)
}
