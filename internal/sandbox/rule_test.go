package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func addFault(t testing.TB, s *Sandbox, f Fault) {
	t.Helper()
	if err := s.AddFault(f); err != nil {
		t.Fatal(err)
	}
}

// outcomes returns the first digits of the statuses of n enrollments.
func outcomes(s *Sandbox, n int) string {
	var all strings.Builder
	for range n {
		fmt.Fprint(&all, do(s, request("POST", "/v3/mandates", enrollment1().String())).Code/100)
	}
	return all.String()
}

func TestTheFirstRuleThatAppliesFires(t *testing.T) {
	s := newSandbox(t, strictOptions())
	addFault(t, s, Fault{Operation: "send", Kind: Status, Status: 400})
	addFault(t, s, Fault{Operation: "enroll", Kind: Status, Status: 400, Times: 2, Skip: 1})
	addFault(t, s, Fault{Operation: "*", Kind: Status, Status: 503, Times: 2})
	equal(t, "statuses", outcomes(s, 5), "54452")
	var fired []int
	for _, f := range s.Faults() {
		fired = append(fired, f.Fired)
	}
	equal(t, "fired", fired, []int{0, 2, 2})
	equal(t, "in all", s.Oracle(Query{}).Faults, map[string]int{"status": 4})
	s.ClearFaults("*")
	equal(t, "after clearing", outcomes(s, 2), "22")
	equal(t, "still counted", s.Oracle(Query{}).Faults, map[string]int{"status": 4})
}

func TestAShareIsDrawnFromItsSeed(t *testing.T) {
	draw := func(seed uint64) string {
		s := newSandbox(t, strictOptions())
		addFault(t, s, Fault{Operation: "enroll", Kind: Status, Share: 0.25, Seed: seed})
		return outcomes(s, 400)
	}
	one := draw(7)
	if n := strings.Count(one, "5"); n < 70 || n > 130 {
		t.Errorf("%d of 400 failed, want about 100", n)
	}
	equal(t, "same seed, same calls", draw(7) == one, true)
	equal(t, "another seed, the same calls", draw(8) == one, false)
}

func TestMatchNarrowsToCallsThatHoldAText(t *testing.T) {
	s := newSandbox(t, strictOptions())
	addFault(t, s, Fault{Operation: "*", Kind: Status, Match: "DD7"})
	equal(t, "other order", outcomes(s, 1), "2")
	equal(t, "in a body", do(s, request("POST", "/v3/mandates", enrollment1().with("order_number", "DD7").String())).Code, 500)
	equal(t, "in a query", do(s, request("GET", "/v3/mandates/transactions?order_number=DD7", "")).Code, 500)
	equal(t, "seen", s.Faults()[0].Seen, 2)
	for match, code := range map[string]int{"Ann & Bob": 500, "100.50": 500, "100.5": 500, "100.49": 200, "Ann & Cem": 200} {
		s := newSandbox(t, strictOptions())
		addFault(t, s, Fault{Operation: "*", Kind: Status, Match: match})
		body := strings.Replace(enrollment1().with("payer_name", "Ann & Bob").with("amount", 100.5).String(), "Ann & Bob", `Ann \u0026 Bob`, 1)
		equal(t, match, do(s, request("POST", "/v3/mandates", body)).Code, code)
	}
}

func TestFaultsThatMakeNoSenseAreRefusedByName(t *testing.T) {
	s := newSandbox(t, strictOptions())
	for body, want := range map[string]string{
		`{"operation":"other","kind":"cut"}`:                 "operation",
		`{"operation":"enroll","kind":"other"}`:              "kind",
		`{"operation":"enroll","kind":"cut","times":-1}`:     "times",
		`{"operation":"enroll","kind":"cut","share":2}`:      "share",
		`{"operation":"enroll","kind":"delay"}`:              "delay",
		`{"operation":"enroll","kind":"cut","delay":"1s"}`:   "delay",
		`{"operation":"enroll","kind":"delay","delay":3}`:    "Fault.delay",
		`{"operation":"enroll","kind":"status","status":42}`: "status",
		`{"operation":"enroll","kind":"short"}`:              "short",
		`{"operation":"send","kind":"short","accept":-1}`:    "accept",
		`{"operation":"enroll","kind":"cut","tmies":1}`:      "tmies",
		`nonsense`: "invalid",
	} {
		status, got := ask(t, s, "POST", "/_sandbox/faults", body)
		if text, _ := got["error"].(string); status != http.StatusBadRequest || !strings.Contains(text, want) {
			t.Errorf("%s: got %d %v, want 400 naming %s", body, status, got, want)
		}
	}
	equal(t, "current rules", len(s.Faults()), 0)
}

func TestFaultsAreListedAndClearedOverHTTP(t *testing.T) {
	s := newSandbox(t, strictOptions())
	must(t, s, "POST", "/_sandbox/faults", `{"operation":"enroll","kind":"status"}`)
	must(t, s, "POST", "/_sandbox/faults", `{"operation":"send","kind":"delay","delay":"1.5s"}`)
	outcomes(s, 1)
	got := must(t, s, "GET", "/_sandbox/faults", "")
	equal(t, "listed", []any{dig(t, got, "faults", 0, "fired"), dig(t, got, "faults", 1, "delay"), dig(t, got, "fired", "status")},
		[]any{1, "1.5s", 1})
	s.ClearFaults("enroll")
	equal(t, "left", []any{len(s.Faults()), s.Faults()[0].Operation}, []any{1, "send"})
	must(t, s, "DELETE", "/_sandbox/faults", "")
	equal(t, "left", len(s.Faults()), 0)
}

func TestLatencyAndDelaysPassInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSandbox(t, strictOptions())
		set(t, s, func(v *Settings) { v.Latency = Duration(20 * time.Millisecond) })
		addFault(t, s, Fault{Operation: "enroll", Kind: Delay, Delay: Duration(time.Hour), Times: 1})
		begin := time.Now()
		equal(t, "status", outcomes(s, 1), "2")
		equal(t, "delay and latency", time.Since(begin), time.Hour+20*time.Millisecond)
		begin = time.Now()
		outcomes(s, 1)
		equal(t, "latency alone", time.Since(begin), 20*time.Millisecond)
	})
}

func TestSettingsAreChangedByName(t *testing.T) {
	s := newSandbox(t, strictOptions())
	got := must(t, s, "PUT", "/_sandbox/settings", `{"latency":"20ms","quota":5}`)
	equal(t, "answer", []any{got["latency"], got["quota"], got["log_order"]}, []any{"20ms", 5, "newest"})
	for _, body := range []string{`{"qouta":1}`, `{"quota":-1}`, `{"log_order":"random"}`, `{"log_cap":0}`,
		`{"share_bounced":0.6,"share_deferred":0.6}`, `{"latency":1}`, `{"latency":"-1s"}`, `{"log_late_by":"-1s"}`,
		`{"callback_copies":101}`, `x`} {
		if status, got := ask(t, s, "PUT", "/_sandbox/settings", body); status != http.StatusBadRequest || got["error"] == "" {
			t.Errorf("%s: got %d %v", body, status, got)
		}
	}
	equal(t, "unchanged", s.Settings().Quota, 5)
}

func TestACutWithoutATCPConnectionOnlyCloses(t *testing.T) {
	w := newWire(t)
	w.fault(`{"operation":"enroll","kind":"cut"}`)
	_, _, _, err := w.enroll()
	equal(t, "over TCP", errors.Is(err, syscall.ECONNRESET), true)
	defer func() { equal(t, "in memory", recover(), http.ErrAbortHandler) }()
	do(w.s, request("POST", "/v3/mandates", enrollment1().String()).WithContext(context.Background()))
}
