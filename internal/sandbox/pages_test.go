package sandbox

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func page(t testing.TB, s *Sandbox, path string) string {
	t.Helper()
	w := do(s, httptest.NewRequest("GET", path, nil))
	if w.Code != http.StatusOK || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/html") {
		t.Fatalf("%s: %d %v", path, w.Code, w.Header())
	}
	return w.Body.String()
}

// enrolled accepts an enrollment and returns the path of its page.
func enrolled(t testing.TB, s *Sandbox, body fields) string {
	t.Helper()
	link := must(t, s, "POST", "/v3/mandates", body.String())["url"].(string)
	return strings.TrimPrefix(link, "http://sandbox.test")
}

// click is a person who clicks a button on a page.
func click(s *Sandbox, path, decision string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("POST", path, strings.NewReader(url.Values{"decision": {decision}}.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return do(s, r)
}

func TestAPersonDecidesOnThePageBehindTheURL(t *testing.T) {
	for decision, want := range map[string][]any{ // transaction, mandate, where the page leads
		"approve": {3, "Approved", 3, "Active", "https://shop.example.test/yes"},
		"decline": {2, "Failed", 6, "Rejected", "https://shop.example.test/no"},
		"cancel":  {4, "Cancelled", 7, "Cancelled", "https://shop.example.test/no"},
		"expire":  {5, "Expired", 0, "New", "https://shop.example.test/no"},
	} {
		s := newSandbox(t, strictOptions())
		path := enrolled(t, s, enrollment1().with("success_url", "https://shop.example.test/yes").with("failed_url",
			"https://shop.example.test/no"))
		before := page(t, s, path)
		for _, text := range []string{"DD1", "Test Payer", "100 MYR", "Monthly", `value="` + decision + `"`, `name="viewport"`} {
			if !strings.Contains(before, text) {
				t.Errorf("the page lacks %q:\n%s", text, before)
			}
		}
		equal(t, "clicked", click(s, path, decision).Code, http.StatusSeeOther)
		record := dig(t, list(t, s, "?order_number=DD1"), "data", 0)
		equal(t, decision, []any{dig(t, record, "status"), dig(t, record, "status_description"), dig(t, record, "mandate", "status"),
			dig(t, record, "mandate", "status_description")}, want[:4])
		after := page(t, s, path)
		if strings.Contains(after, "<button") || !strings.Contains(after, want[4].(string)) {
			t.Errorf("after %s the page is\n%s", decision, after)
		}
		click(s, path, "approve")
		equal(t, "decided once", dig(t, list(t, s, "?order_number=DD1"), "data", 0, "status"), want[0])
	}
}

func TestOnlyThePageOfAnEnrollmentDecides(t *testing.T) {
	s := newSandbox(t, strictOptions())
	path := enrolled(t, s, enrollment1())
	equal(t, "no such decision", click(s, path, "other").Code, http.StatusBadRequest)
	for _, wrong := range []string{"/enroll/", "/enroll/1", "/enroll/2-0", "/enroll/-1-0", "/enroll/zz", path + "0"} {
		equal(t, wrong, []int{click(s, wrong, "approve").Code, do(s, httptest.NewRequest("GET", wrong, nil)).Code}, []int{404, 404})
	}
	equal(t, "PUT", do(s, httptest.NewRequest("PUT", path, nil)).Code, http.StatusMethodNotAllowed)
	equal(t, "still new", dig(t, list(t, s, ""), "data", 0, "status"), 0)
}

func TestAnExpiredLinkLeavesNothingToDecide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSandbox(t, strictOptions())
		path := enrolled(t, s, enrollment1())
		time.Sleep(2 * time.Hour)
		click(s, path, "approve")
		if text := page(t, s, path); strings.Contains(text, "<button") || !strings.Contains(text, "Expired") {
			t.Errorf("the page is\n%s", text)
		}
	})
}

func TestPagesEscapeWhatTheyShow(t *testing.T) {
	s := instant(t, newSandbox(t, strictOptions()))
	const evil = `<script>alert("x")</script>`
	path := enrolled(t, s, enrollment1().with("order_number", evil).with("payer_name", evil).with("application_reason",
		evil).with("frequency_mode", evil).with("success_url", `https://x.test/"><script>alert(1)</script>`))
	if err := s.Decide(evil, Approve); err != nil {
		t.Fatal(err)
	}
	must(t, s, "POST", "/api/v0/messages", message1().with("subject", evil).with("to", []string{`"<script>"@example.test`}).with("from",
		`<"<script>"@example.test>`).String())
	for _, path := range []string{"/", path, "/mail", "http://127.0.0.1/calls"} {
		text := page(t, s, path)
		if strings.Contains(text, "<script") || !strings.Contains(text, "&lt;script&gt;") {
			t.Errorf("%s shows it raw, or not at all:\n%s", path, text)
		}
	}
}

func TestTheMailPageShowsSubjectRecipientsAndStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSandbox(t, strictOptions())
		send(t, s, "First notice", "a@example.test", "defer@example.test", "bounce@example.test")
		send(t, s, "To many", many(30)...)
		text := page(t, s, "/mail")
		for _, want := range []string{"First notice", "a@example.test &middot; queued", "and 10 more", `name="viewport"`} {
			if !strings.Contains(text, want) {
				t.Errorf("the page lacks %q:\n%s", want, text)
			}
		}
		time.Sleep(time.Minute)
		text = page(t, s, "/mail")
		for _, want := range []string{"a@example.test &middot; delivered", "defer@example.test &middot; deferred",
			"bounce@example.test &middot; bounced"} {
			if !strings.Contains(text, want) {
				t.Errorf("a minute later the page lacks %q:\n%s", want, text)
			}
		}
	})
}

func TestTheIndexLinksItsPages(t *testing.T) {
	s := newSandbox(t, strictOptions())
	var path string
	for range 51 {
		path = enrolled(t, s, enrollment1())
	}
	text := page(t, s, "/")
	for _, want := range []string{`href="/mail"`, `href="` + path + `"`, `href="?page=2"`, "51 enrollments",
		"1 order number was enrolled more than once"} {
		if !strings.Contains(text, want) {
			t.Errorf("the index lacks %q:\n%s", want, text)
		}
	}
	equal(t, "enrollments of page 2", strings.Count(page(t, s, "/?page=2"), `href="/enroll/`), 1)
}
