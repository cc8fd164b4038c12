package sandbox

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
)

func TestMessagesThatBreakARuleAreRefusedWhole(t *testing.T) {
	s := newSandbox(t, strictOptions())
	var bad []fields
	for _, field := range []string{"to", "subject", "as_html", "content"} {
		bad = append(bad, message1().without(field), message1().with(field, nil), message1().with(field, ""),
			message1().with(field, map[string]int{}))
	}
	bad = append(bad,
		message1().with("as_html", 2), message1().with("as_html", true), message1().with("as_html", "1"),
		message1().with("to", []string{}), message1().with("to", " , "), message1().with("to", []int{1}), message1().with("to", "nobody"),
		message1().with("to", []string{"a@example.test", "b@"}), message1().with("to", many(1001)),
		message1().with("from", "nobody"), message1().with("from", 1), message1().with("reply_to",
			"nobody"), message1().with("unsubscribe_link", "nowhere"),
		message1().with("headers", "X-A: 1"), message1().with("headers", map[string]int{"X-A": 1}), message1().with("headers", []int{1}),
		message1().with("headers", map[string]string{"bcc": "a@example.test"}), message1().with("headers", []string{"Subject: other"}),
		message1().with("headers", map[string]string{"X-A": "1\r\nBcc: a@example.test"}), message1().with("headers", []string{"no colon"}),
	)
	for _, body := range bad {
		status, got := ask(t, s, "POST", "/api/v0/messages", body.String())
		if status != http.StatusUnprocessableEntity || got["error"] != true || fmt.Sprint(got["status_code"]) != "422" || got["message"] == "" {
			t.Errorf("%.200v: got %d %v, want the envelope of a 422", body, status, got)
		}
	}
	o := s.Oracle(Query{}).Mail
	equal(t, "accepted, refused", []any{o.Accepted, o.Refused, o.Recipients}, []int{0, len(bad), 0})
}

func TestMessagesWithinTheRulesAreAccepted(t *testing.T) {
	s := newSandbox(t, strictOptions())
	for _, c := range []struct {
		body fields
		want int
	}{
		{message1(), 1},
		{message1().with("to", "a@example.test"), 1},
		{message1().with("to", " a@example.test, ,b@example.test,c@example.test, "), 3},
		{message1().with("to", `"Doe, Jane" <jane@example.test>, b@example.test`), 2},
		{message1().with("to", []string{`"Doe, \"J\"" <jane@example.test>`, "b@example.test, c@example.test"}), 3},
		{message1().with("to", []string{"a@example.test", "a@example.test"}), 2},
		{message1().with("to", many(1000)), 1000},
		{message1().with("from", "Me <me@example.test>").with("reply_to", "back@example.test").with("unsubscribe_link",
			"https://example.test/u"), 1},
		{message1().with("as_html", 1).with("headers", map[string]string{"X-A": "1"}), 1},
		{message1().with("headers", []string{"X-A: 1", "X-B: 2"}), 1},
		{message1().with("from", "").with("reply_to", nil), 1},
	} {
		got := must(t, s, "POST", "/api/v0/messages", c.body.String())
		equal(t, fmt.Sprintf("%.200v", c.body), []any{got["error"], got["status_code"], got["message"], dig(t, got, "data", "total_recipient")},
			[]any{false, 200, "OK", c.want})
	}
	equal(t, "largest", s.Oracle(Query{Summary: true}).Mail.Largest, 1000)
}

func TestTheQuotaIsCountedDownAndThenRefuses(t *testing.T) {
	s := newSandbox(t, strictOptions())
	set(t, s, func(v *Settings) { v.Quota = 10 })
	account := func() []any {
		data := must(t, s, "GET", "/api/v0/user", "")["data"]
		return []any{dig(t, data, "limit_quota"), dig(t, data, "total_usage"), dig(t, data, "credit_balance"), dig(t, data, "suspended")}
	}
	if _, isText := account()[0].(string); !isText {
		t.Errorf("limit_quota is %T, want a string of digits", account()[0])
	}
	must(t, s, "POST", "/api/v0/messages", message1().with("to", many(7)).String())
	equal(t, "after seven", account(), []any{10, 7, 3, false})
	status, got := ask(t, s, "POST", "/api/v0/messages", message1().with("to", many(4)).String())
	equal(t, "four where three are left", []any{status, got["error"], got["status_code"], dig(t, got, "data")}, []any{402, true, 402, "map[]"})
	must(t, s, "POST", "/api/v0/messages", message1().with("to", many(3)).String())
	equal(t, "used up", account(), []any{10, 10, 0, false})
	status, _ = ask(t, s, "POST", "/api/v0/messages", message1().String())
	equal(t, "when used up", status, 402)
	set(t, s, func(v *Settings) { v.Quota = 11 })
	must(t, s, "POST", "/api/v0/messages", message1().String())
}

func TestASuspendedAccountMayOnlyRead(t *testing.T) {
	s := newSandbox(t, strictOptions())
	set(t, s, func(v *Settings) { v.Suspended = true })
	status, got := ask(t, s, "POST", "/api/v0/messages", message1().String())
	equal(t, "submission", []any{status, got["error"], got["status_code"]}, []any{403, true, 403})
	equal(t, "account", dig(t, must(t, s, "GET", "/api/v0/user", ""), "data", "suspended"), true)
	must(t, s, "GET", "/api/v0/logs", "")
}

func TestEveryMailAnswerIsAnEnvelope(t *testing.T) {
	s := newSandbox(t, strictOptions())
	unknown := request("GET", "/api/v0/user", "")
	unknown.Header.Del("X-API-Key")
	for _, r := range []*http.Request{
		request("POST", "/api/v0/messages", message1().String()), request("POST", "/api/v0/messages", "{"), request("PUT", "/api/v0/messages",
			""),
		request("GET", "/api/v0/logs", ""), request("GET", "/api/v0/user", ""), request("GET", "/api/v0/other", ""), unknown,
	} {
		w := do(s, r)
		var got struct {
			Error      *bool
			StatusCode *int `json:"status_code"`
			Message    *string
			Data       map[string]any
		}
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || got.Error == nil || got.StatusCode == nil || got.Message == nil ||
			got.Data == nil {
			t.Fatalf("%s %s: %s is not an envelope", r.Method, r.URL, w.Body)
		}
		equal(t, r.Method+" "+r.URL.Path, []any{*got.StatusCode, *got.Error}, []any{w.Code, w.Code != 200})
	}
}
