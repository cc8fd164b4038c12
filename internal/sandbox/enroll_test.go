package sandbox

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestEnrollmentsThatBreakARuleAreRefusedByField(t *testing.T) {
	s := newSandbox(t, strictOptions())
	type entry struct {
		field string
		value any
	}
	bad := []entry{
		{"amount", 4.99}, {"amount", 30000.01}, {"amount", 5.001}, {"amount", "100"}, {"amount", -5}, {"amount", 0}, {"amount",
			true}, {"amount", json.RawMessage("1e2")},
		{"payer_id_type", "1"}, {"payer_id_type", 1.5}, {"payer_id", "90-01"}, {"payer_id", 1.5}, {"payer_id", []int{}},
		{"payer_telephone_number", "+6019"}, {"payer_telephone_number", true}, {"max_frequency", "9"}, {"max_frequency", 1.5},
		{"effective_date", "01/02/2026"}, {"effective_date", "2026-02-30"}, {"effective_date", 20260102}, {"expiry_date", "tomorrow"},
		{"link_expired_at", "2026-01-01"}, {"link_expired_at", "2026-01-01T10:00:00Z"},
	}
	for _, field := range []string{"portal_key", "order_number", "amount", "payer_id_type", "payer_id", "payer_name", "payer_email",
		"payer_telephone_number", "frequency_mode", "application_reason"} {
		bad = append(bad, entry{field, nil}, entry{field, ""}, entry{field, map[string]int{}})
	}
	for _, field := range []string{"return_url", "success_url", "failed_url", "maintenance_url", "termination_url"} {
		bad = append(bad, entry{field, "not a url"}, entry{field, "javascript:alert(1)"}, entry{field, 1})
	}
	for _, field := range []string{"payer_bank_code", "payer_bank_code_hashed", "metadata", "platform_id", "checksum"} {
		bad = append(bad, entry{field, 1})
	}
	for _, b := range bad {
		status, got := ask(t, s, "POST", "/v3/mandates", enrollment1().with(b.field, b.value).String())
		problems, _ := got["error"].(map[string]any)
		if status != http.StatusUnprocessableEntity || len(problems) != 1 || problems[b.field] == nil {
			t.Errorf("%s = %v: got %d %v, want 422 naming the field alone", b.field, b.value, status, got)
		}
	}
	_, got := ask(t, s, "POST", "/v3/mandates", "{}")
	equal(t, "fields named for an empty body", len(got["error"].(map[string]any)), 10)
	o := s.Oracle(Query{})
	equal(t, "accepted", o.Enroll.Accepted, 0)
	equal(t, "refused", o.Enroll.Refused, len(bad)+1)
}

func TestEnrollmentsWithinTheRulesAreAccepted(t *testing.T) {
	s := newSandbox(t, strictOptions())
	for _, body := range []fields{
		enrollment1(),
		enrollment1().with("amount", 5), enrollment1().with("amount", json.RawMessage("5.00")), enrollment1().with("amount",
			30000), enrollment1().with("amount", 5.5),
		enrollment1().with("payer_id", 900101011234), enrollment1().with("payer_id", "000101011234"),
		enrollment1().with("frequency_mode", "QT"), enrollment1().with("payer_id_type", 9),
		enrollment1().with("max_frequency", nil), enrollment1().with("max_frequency", 3), enrollment1().with("metadata", ""),
		enrollment1().with("effective_date", "2030-01-31").with("expiry_date", "2031-01-31"),
		enrollment1().with("return_url", "https://shop.example.test/cb?a=1"), enrollment1().with("something_else", 1),
	} {
		for _, path := range []string{"/v3/mandates", "/api/v2/mandates"} {
			if status, got := ask(t, s, "POST", path, body.String()); status != http.StatusOK {
				t.Errorf("%s %v: got %d %v", path, body, status, got)
			}
		}
	}
	equal(t, "accepted", s.Oracle(Query{}).Enroll.Accepted, 30)
}

func TestEnrollmentAnswersWhatTheDocumentShows(t *testing.T) {
	s := newSandbox(t, strictOptions())
	body := enrollment1().with("payer_id", "000101011234").with("payer_name", `Ana "A" <b> é`).with("amount", json.RawMessage("100.50"))
	got := must(t, s, "POST", "/v3/mandates", body.String())
	want := map[string]any{"payer_name": `Ana "A" <b> é`, "payer_id_type": 1, "payer_id": "000101011234",
		"payer_telephone_number": "60190000000",
		"order_number":           "DD1", "amount": 100.5, "application_type": "Enrollment", "frequency_mode": "MT", "expiry_date": ""}
	for name, value := range want {
		equal(t, name, got[name], value)
	}
	if link, _ := got["url"].(string); !strings.HasPrefix(link, "http://sandbox.test/enroll/") {
		t.Errorf("url is %q", link)
	}
}

func TestOmittedEffectiveDateIsTheNextDayInTheZone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // begins at midnight UTC of 2000-01-01
		s := newSandbox(t, strictOptions())
		equal(t, "at 08:00 local", must(t, s, "POST", "/v3/mandates", enrollment1().String())["effective_date"], "2000-01-02")
		time.Sleep(16 * time.Hour)
		equal(t, "at 00:00 local", must(t, s, "POST", "/v3/mandates", enrollment1().String())["effective_date"], "2000-01-03")
	})
}

func TestLinkExpiresAfterAnHourOrWhenAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSandbox(t, strictOptions())
		must(t, s, "POST", "/v3/mandates", enrollment1().String())
		must(t, s, "POST", "/v3/mandates", enrollment1().with("order_number", "DD2").with("link_expired_at", "2000-01-01 12:00:00").String())
		status := func(order string) any {
			return dig(t, must(t, s, "GET", "/v3/mandates/transactions?order_number="+order, ""), "data", 0, "status_description")
		}
		time.Sleep(time.Hour - time.Millisecond)
		equal(t, "just before the hour", status("DD1"), "New")
		time.Sleep(time.Millisecond)
		equal(t, "after the hour", status("DD1"), "Expired")
		equal(t, "deciding then", s.Decide("DD1", Approve), ErrDecided)
		equal(t, "one with its own time", status("DD2"), "New")
		time.Sleep(3 * time.Hour)
		equal(t, "at its own time", status("DD2"), "Expired")
	})
}

func TestPortalKeyAndChannelAreChecked(t *testing.T) {
	s := newSandbox(t, strictOptions())
	status, got := ask(t, s, "POST", "/v3/mandates", enrollment1().with("portal_key", "other").String())
	equal(t, "another portal key", []any{status, got["success"]}, []any{403, false})
	set(t, s, func(v *Settings) { v.ChannelDisabled = true })
	status, got = ask(t, s, "POST", "/v3/mandates", enrollment1().String())
	equal(t, "channel disabled", []any{status, got["success"]}, []any{403, false})
}

func TestChecksumIsTheHMACOverTheTextsSent(t *testing.T) {
	body := fields{"amount": 100, "application_reason": " Enrollment for DD001 ", "frequency_mode": "MT", "order_number": "DD001",
		"payer_email": "payer@example.test",
		"payer_id":    "900101011234", "payer_id_type": 1, "payer_name": "Test Payer", "payer_telephone_number": 60190000000,
		"portal_key": "portal-1"}
	for text, want := range map[string]string{
		"100":    "c6d9620028e44322586d1ae3a37dc4f802f9b04738a94bcc467e1ae9cae0de9c",
		"100.50": "06b9efde39a3b779851205201e48e3b30a61ece547cded99f8240558fe0067af",
	} {
		v, problems := parseEnrollment(body.with("amount", json.RawMessage(text)).String())
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		equal(t, "checksum with amount "+text, v.checksum(secret), want)
		s := newSandbox(t, strictOptions())
		must(t, s, "POST", "/v3/mandates", body.with("amount", json.RawMessage(text)).with("checksum", want).String())
		status, got := ask(t, s, "POST", "/v3/mandates", body.with("amount", 101).with("checksum", want).String())
		equal(t, "status for another amount", status, 422)
		if dig(t, got, "error", "checksum") == nil {
			t.Errorf("got %v, want the checksum named", got)
		}
	}
	o := strictOptions()
	o.ChecksumSecret = ""
	must(t, newSandbox(t, o), "POST", "/v3/mandates", enrollment1().with("checksum", "anything").String())
}

func TestAmountsAreWrittenInTheirShortestForm(t *testing.T) {
	for text, want := range map[string]string{"100": "100", "100.00": "100", "100.5": "100.5", "100.50": "100.5", "100.05": "100.05",
		"5": "5"} {
		n, ok := cents(text)
		if got := decimal(n); !ok || got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
}
