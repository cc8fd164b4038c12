package sandbox

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

// press is a person who presses a button of the page of troubles.
func press(s *Sandbox, form url.Values, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("POST", "http://127.0.0.1/trouble", strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	return do(s, r)
}

func TestEachButtonMakesCallsFailAndIsCleared(t *testing.T) {
	s := newSandbox(t, strictOptions())
	for _, group := range troubles {
		for _, button := range group.Buttons {
			equal(t, button.Name, press(s, url.Values{"do": {"add"}, "what": {button.Name}, "times": {"10"}}).Code, http.StatusSeeOther)
			faults := s.Faults()
			if len(faults) != 1 || faults[0].Kind != button.Fault.Kind || faults[0].Operation != button.Fault.Operation || faults[0].Times != 10 {
				t.Errorf("%s: the faults are %+v", button.Name, faults)
			}
			if text := page(t, s, "/trouble"); !strings.Contains(text, "10 of 10 calls") || !strings.Contains(text, `value="`+button.Name+`"`) {
				t.Errorf("%s: the page is\n%s", button.Name, text)
			}
			press(s, url.Values{"do": {"clear-all"}})
			equal(t, "cleared", len(s.Faults()), 0)
		}
	}
	press(s, url.Values{"do": {"suspend"}})
	press(s, url.Values{"do": {"disable"}})
	equal(t, "accounts", []bool{s.Settings().Suspended, s.Settings().ChannelDisabled}, []bool{true, true})
	press(s, url.Values{"do": {"reset"}})
	equal(t, "after a reset", []bool{s.Settings().Suspended, s.Settings().ChannelDisabled}, []bool{false, false})
	for _, wrong := range []url.Values{{}, {"do": {"add"}, "what": {"other"}, "times": {"1"}},
		{"do": {"add"}, "what": {"send-cut"}, "times": {"-1"}}, {"do": {"clear"}, "what": {"x"}}} {
		equal(t, wrong.Encode(), press(s, wrong).Code, http.StatusBadRequest)
	}
}

func TestAButtonMakesTheDeductionsOfTheNextCycle(t *testing.T) {
	s := newSandbox(t, strictOptions())
	for _, order := range []string{"DD1", "DD2"} {
		must(t, s, "POST", "/v3/mandates", enrollment1().with("order_number", order).String())
		if err := s.Decide(order, Approve); err != nil {
			t.Fatal(err)
		}
	}
	equal(t, "of nobody", press(s, url.Values{"do": {"cycle"}, "what": {"DD3"}}).Code, http.StatusBadRequest)
	equal(t, "pressed", press(s, url.Values{"do": {"cycle"}, "what": {" DD2 "}}).Code, http.StatusSeeOther)
	equal(t, "deductions", s.Oracle(Query{}).Enroll.Deductions, map[string]int{"Approved": 1, "Failed": 1})
}

func TestAPageElsewherePressesNoButtonAndReadsNoCalls(t *testing.T) {
	s := newSandbox(t, strictOptions())
	form := url.Values{"do": {"add"}, "what": {"send-cut"}, "times": {"1"}}
	equal(t, "another origin", press(s, form, "Origin", "http://evil.test").Code, http.StatusForbidden)
	equal(t, "another site", press(s, form, "Sec-Fetch-Site", "cross-site").Code, http.StatusForbidden)
	equal(t, "faults", len(s.Faults()), 0)
	r := httptest.NewRequest("GET", "http://evil.test/calls", nil)
	equal(t, "a name that points here", do(s, r).Code, http.StatusForbidden)
}

// What arrived is shown with what became of it, the newest first, and without credentials.
func TestTheCallsAreShownWithWhatBecameOfThem(t *testing.T) {
	s := instant(t, newSandbox(t, strictOptions()))
	must(t, s, "POST", "/v3/mandates", enrollment1().String())
	do(s, request("POST", "/v3/mandates", enrollment1().with("amount", "1").with("order_number", "DD2").String()))
	press(s, url.Values{"do": {"add"}, "what": {"enroll-busy"}, "times": {"1"}})
	do(s, request("POST", "/v3/mandates", enrollment1().with("order_number", "DD3").String()))
	press(s, url.Values{"do": {"add"}, "what": {"enroll-garbage"}, "times": {"1"}})
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
	for range callsKept + 10 {
		list(t, s, "?order_number=DD1")
	}
	views := s.journal.views(callsKept+10, s.zone, true)
	equal(t, "kept", []int{len(views), views[0].N, views[len(views)-1].N}, []int{callsKept, callsKept + 10, 11})
	equal(t, "counted", s.journal.tallies()[opTransactions].Accepted, callsKept+10)
}
