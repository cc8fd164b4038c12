package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"errand/internal/sandbox"
	"errand/internal/sandbox/devkit/inshort"
)

func TestEnrollmentSucceedsInTwoEventsAndOneCall(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		b.publish("mandate.enroll.requested", enrollment("r1"))
		b.run(b.mandates(), time.Minute, b.published("mandate.enroll.succeeded.r1", 1))
		e := b.wantOne("mandate.enroll.succeeded.r1")
		if got := b.events("mandate.>"); len(got) != 2 {
			t.Errorf("got %d events, want started and succeeded: %v", len(got), got)
		}
		if e.Body["order_number"] != "order-r1" || e.Body["api_version"] != "v3" || e.Body["attempt"] != 1.0 {
			t.Errorf("body: %s", e.Raw)
		}
		if url, _ := e.Body["enrollment"].(map[string]any)["url"].(string); !strings.Contains(url, "/enroll/") {
			t.Errorf("no url in %s", e.Raw)
		}
		for name, want := range map[string]string{"ce-specversion": "1.0", "ce-type": "mandate.enroll.succeeded", "ce-subject": "r1",
			"ce-source": "/errand/mandate-consumer", "content-type": "application/json"} {
			if got := e.Header.Get(name); got != want {
				t.Errorf("header %s: got %q, want %q", name, got, want)
			}
		}
		if e.Header.Get("ce-id") == "" || e.Header.Get("ce-time") == "" || e.Header.Get("Nats-Msg-Id") != "" {
			t.Errorf("headers: %v", e.Header)
		}
		if o := b.box.Oracle(sandbox.Query{}); o.Enroll.Accepted != 1 || o.Calls["transactions"] != 0 {
			t.Errorf("oracle: %+v", o)
		}
	})
}

func TestRepeatedRequestIsNotCalledAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		for range 3 {
			b.publish("mandate.enroll.requested", enrollment("r1"))
		}
		b.run(b.mandates(), 10*time.Minute, nil)
		b.wantOne("mandate.enroll.succeeded.r1")
		if n := b.box.Enrolled("order-r1"); n != 1 {
			t.Fatalf("enrolled %d times", n)
		}
		b.queueEmpty("MANDATE_REQUESTS")
	})
}

func TestSameIDWithOtherContentsConflicts(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		b.publish("mandate.enroll.requested", enrollment("r1"))
		b.run(b.mandates(), time.Minute, b.published("mandate.enroll.succeeded.r1", 1))
		b.publish("mandate.enroll.requested", enrollment("r1", "payer_name", "Somebody Else"))
		b.run(b.mandates(), time.Minute, b.published("mandate.enroll.failed.*", 1))
		e := b.wantOne("mandate.enroll.failed.MANDATE_REQUESTS-2")
		if e.reason() != "conflict" || e.Body["conflicts_with"] != "r1" {
			t.Errorf("body: %s", e.Raw)
		}
		b.wantOne("mandate.enroll.*.MANDATE_REQUESTS-2")
		if n := len(b.events("mandate.enroll.*.r1")); n != 2 {
			t.Errorf("the first one's history has %d events, want 2", n)
		}
		if d := b.wantOne("dead.mandate.enroll.requested"); d.Header.Get("Errand-Reason") != "conflict" {
			t.Errorf("dead letter: %v", d.Header)
		}
	})
}

// An id that looks like the one we would give to another request is refused, so that the
// other one has its own history.
func TestAForgedOwnIDBlocksNobody(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		b.publish("mandate.enroll.requested", enrollment("MANDATE_REQUESTS-2"))
		second := enrollment("r2")
		delete(second, "request_id")
		b.publish("mandate.enroll.requested", second)
		b.run(b.mandates(), time.Minute, b.published("mandate.enroll.*.*", 3))
		b.wantOne("mandate.enroll.succeeded.MANDATE_REQUESTS-2")
		if e := b.wantOne("mandate.enroll.failed.MANDATE_REQUESTS-1"); e.reason() != "invalid_request" {
			t.Errorf("body: %s", e.Raw)
		}
		b.queueEmpty("MANDATE_REQUESTS")
	})
}

func TestRefusalFailsWithTheUpstreamsMessage(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		b.fault(sandbox.Fault{Operation: "enroll", Kind: sandbox.Status, Status: 422, Body: []byte(`{"error":{"payer_bank_code":["The payer bank code is unknown."]}}`)})
		b.publish("mandate.enroll.requested", enrollment("r1"))
		b.run(b.mandates(), time.Minute, b.published("mandate.enroll.failed.r1", 1))
		e := b.wantOne("mandate.enroll.failed.r1")
		if e.reason() != "refused" || e.Body["http_status"] != 422.0 || !strings.Contains(e.Raw, "payer bank code is unknown") {
			t.Errorf("body: %s", e.Raw)
		}
		d := b.wantOne("dead.mandate.enroll.requested")
		if d.Body["order_number"] != "order-r1" || d.Header.Get("Errand-Request-Id") != "r1" || d.Header.Get("Errand-Reason") != "refused" {
			t.Errorf("dead letter: %v %s", d.Header, d.Raw)
		}
	})
}

func TestSixHourOutageLosesNothing(t *testing.T) {
	lasts := inshort.Choose(t, 6*time.Hour, time.Hour)
	inBubble(t, func(t *testing.T, b *bubble) {
		began := time.Now()
		var calls atomic.Int64
		b.intercept = func(*http.Request) int {
			if time.Since(began) < lasts {
				calls.Add(1)
				return http.StatusServiceUnavailable
			}
			return 0
		}
		const n = 20
		for i := range n {
			b.publish("mandate.enroll.requested", enrollment(fmt.Sprint("r", i)))
		}
		b.run(b.mandates(), lasts+2*time.Hour, b.published("mandate.enroll.succeeded.*", n))
		if got := len(b.events("mandate.enroll.succeeded.*")); got != n {
			t.Fatalf("%d succeeded, want %d\n%s", got, n, b.logs)
		}
		if took := time.Since(began); took > lasts+20*time.Minute {
			t.Errorf("the last one came back after %v", took)
		}
		// One probe an interval, and what was in flight at the start.
		if most := int64(lasts/(10*time.Second)) + 100; calls.Load() > most {
			t.Errorf("%d calls during the outage, want at most %d", calls.Load(), most)
		}
		if twice := b.box.Oracle(sandbox.Query{}).Enroll.TwiceCount; twice != 0 {
			t.Errorf("%d enrolled twice", twice)
		}
		t.Logf("%d calls during the outage", calls.Load())
	})
}

func TestRetryAfterIsKept(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		var at []time.Duration
		began := time.Now()
		b.intercept = func(*http.Request) int { at = append(at, time.Since(began)); return 0 }
		b.fault(sandbox.Fault{Operation: "enroll", Kind: sandbox.Status, Status: 429, Times: 1, Headers: map[string]string{"Retry-After": "7"}})
		b.fault(sandbox.Fault{Operation: "enroll", Kind: sandbox.Status, Status: 503, Times: 1, Headers: map[string]string{"Retry-After": "3600"}})
		b.publish("mandate.enroll.requested", enrollment("r1"))
		b.run(b.mandates(), 2*time.Hour, b.published("mandate.enroll.succeeded.r1", 1))
		if len(at) != 3 || at[1]-at[0] < 7*time.Second || at[1]-at[0] > 8*time.Second || at[2]-at[1] < time.Hour || at[2]-at[1] > time.Hour+5*time.Second {
			t.Fatalf("calls at %v, want 7 s and then an hour apart\n%s", at, b.logs)
		}
		d := b.wantOne("mandate.enroll.deferred.r1")
		if d.reason() != "busy" || d.Body["http_status"] != 503.0 || d.Body["not_before"] == nil {
			t.Errorf("deferred: %s", d.Raw)
		}
	})
}

func TestGivesUpAtGiveUpAt(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		b.intercept = func(*http.Request) int { return http.StatusServiceUnavailable }
		began := time.Now()
		b.publish("mandate.enroll.requested", enrollment("r1", "give_up_at", began.Add(40*time.Minute).UTC().Format(time.RFC3339)))
		b.run(b.mandates(), 2*time.Hour, b.published("mandate.enroll.failed.r1", 1))
		if e := b.wantOne("mandate.enroll.failed.r1"); e.reason() != "unavailable" {
			t.Errorf("body: %s", e.Raw)
		}
		if took := time.Since(began); took < 39*time.Minute || took > 42*time.Minute {
			t.Errorf("given up after %v, want 40 minutes", took)
		}
		if n := len(b.events("mandate.enroll.deferred.r1")); n < 3 {
			t.Errorf("deferred %d times, want the doubling waits of 40 minutes", n)
		}
	})
}

func TestRefusedCredentialsHoldTheProgram(t *testing.T) {
	lasts := inshort.Choose(t, time.Hour, 15*time.Minute)
	inBubble(t, func(t *testing.T, b *bubble) {
		began := time.Now()
		var calls atomic.Int64
		b.intercept = func(*http.Request) int {
			if time.Since(began) < lasts {
				calls.Add(1)
				return http.StatusUnauthorized
			}
			return 0
		}
		const n = 30
		for i := range n {
			b.publish("mandate.enroll.requested", enrollment(fmt.Sprint("r", i)))
		}
		b.run(b.mandates(), 2*time.Hour, b.published("mandate.enroll.succeeded.*", n))
		if got := len(b.events("mandate.enroll.succeeded.*")); got != n {
			t.Fatalf("%d succeeded, want %d\n%s", got, n, b.logs)
		}
		if most := int64(lasts/(10*time.Second)) + 8; calls.Load() > most {
			t.Errorf("%d calls while held, want at most one every 10 s: %d", calls.Load(), most)
		}
		if took := time.Since(began); took > lasts+30*time.Second {
			t.Errorf("resumed only after %v", took)
		}
		for _, e := range b.events("mandate.enroll.deferred.*") {
			if e.reason() != "held" || e.Body["http_status"] != 401.0 {
				t.Fatalf("deferred: %s", e.Raw)
			}
		}
	})
}

func TestCallOfUnknownFate(t *testing.T) {
	for _, c := range []struct {
		name, kind, onUnknown string
		state, reason         string
		enrolled, evidence    int
	}{
		{"done and cut, report", sandbox.AcceptCut, "report", "uncertain", "link_lost", 1, 1},
		{"done and cut, retry", sandbox.AcceptCut, "retry", "uncertain", "link_lost", 1, 1},
		{"done and 500", sandbox.AcceptStatus, "retry", "uncertain", "link_lost", 1, 1},
		{"done and unreadable", sandbox.Garbage, "retry", "uncertain", "link_lost", 1, 1},
		{"done without url", sandbox.AcceptEmpty, "retry", "uncertain", "link_lost", 1, 1},
		{"not done and cut, report", sandbox.Cut, "report", "uncertain", "no_answer", 0, 0},
		{"not done and cut, retry", sandbox.Cut, "retry", "succeeded", "", 1, 0},
		{"not done and 500, retry", sandbox.Status, "retry", "succeeded", "", 1, 0},
	} {
		runInBubble(t, c.name, func(t *testing.T, b *bubble) {
			b.fault(sandbox.Fault{Operation: "enroll", Kind: c.kind, Times: 1})
			b.publish("mandate.enroll.requested", enrollment("r1", "on_unknown", c.onUnknown))
			b.run(b.mandates(), 10*time.Minute, b.published("mandate.enroll."+c.state+".r1", 1))
			e := b.wantOne("mandate.enroll." + c.state + ".r1")
			if e.reason() != c.reason {
				t.Errorf("reason %q, want %q: %s", e.reason(), c.reason, e.Raw)
			}
			if evidence, _ := e.Body["evidence"].([]any); len(evidence) != c.evidence {
				t.Errorf("evidence: %s", e.Raw)
			}
			if after := e.Body["after_unknown"] == true; after != (c.state == "succeeded") {
				t.Errorf("after_unknown: %s", e.Raw)
			}
			if got := b.box.Enrolled("order-r1"); got != c.enrolled {
				t.Errorf("enrolled %d times, want %d", got, c.enrolled)
			}
			if c.state == "uncertain" {
				b.wantOne("dead.mandate.enroll.requested")
			}
		})
	}
}

func TestPinnedDefaultsAreTheSameInEveryRetry(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		b.fault(sandbox.Fault{Operation: "enroll", Kind: sandbox.Status, Status: 503, Times: 12})
		b.publish("mandate.enroll.requested", enrollment("r1"))
		b.run(b.mandates(), time.Hour, b.published("mandate.enroll.succeeded.r1", 1))
		b.wantOne("mandate.enroll.succeeded.r1")
		started := b.events("mandate.enroll.started.r1")
		if len(started) < 3 {
			t.Fatalf("%d started events, want one a delivery", len(started))
		}
		for _, s := range started {
			if s.Body["link_expired_at"] != nil {
				t.Errorf("link_expired_at was not given and is %v, want the service's own default", s.Body["link_expired_at"])
			}
			for _, field := range []string{"effective_date", "max_frequency", "fingerprint"} {
				if s.Body[field] == nil || s.Body[field] != started[0].Body[field] {
					t.Errorf("%s: %v, at first %v", field, s.Body[field], started[0].Body[field])
				}
			}
		}
	})
}
