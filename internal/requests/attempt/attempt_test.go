package attempt

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"errand/pkg/messages"
)

// Each row is one delivery: what was before, what calls come to, what OnUnknown answers.
func TestWhatBecomesOfADelivery(t *testing.T) {
	const (
		first  = 10 * time.Second // the shortest deferral
		second = time.Minute      // after one of half a minute
	)
	for _, c := range []struct {
		before, results, looks string
		verdict                Verdict
		reason                 messages.Reason
		calls, looked          int
		events                 string
		afterUnknown           bool
		held                   int
		wait                   time.Duration
	}{
		// A first delivery.
		{"nothing", "ok", "", Done, "", 1, 0, "started/1 succeeded/1", false, 0, 0},
		{"nothing", "refused", "", Refused, "refused", 1, 0, "started/1 failed/1", false, 0, 0},
		{"nothing", "busy", "", RetryLater, "busy", 3, 0, "started/1 deferred/3", false, 0, first},
		{"nothing", "busy, ok", "", Done, "", 2, 0, "started/1 succeeded/2", false, 0, 0},
		{"nothing", "busy, busy, refused", "", Refused, "refused", 3, 0, "started/1 failed/3", false, 0, 0},
		{"nothing", "busy 8s, ok", "", Done, "", 2, 0, "started/1 started/2 succeeded/2", false, 0, 0},
		{"nothing", "busy 2m", "", RetryLater, "busy", 1, 0, "started/1 deferred/1", false, 0, 2 * time.Minute},
		{"nothing", "busy, busy 2m", "", RetryLater, "busy", 2, 0, "started/1 deferred/2", false, 0, 2 * time.Minute},
		{"nothing", "held", "", RetryLater, "held", 1, 0, "started/1 deferred/1", false, 1, first},
		{"nothing", "held 2m", "", RetryLater, "held", 1, 0, "started/1 deferred/1", false, 1, 2 * time.Minute},
		{"nothing", "busy, held", "", RetryLater, "held", 2, 0, "started/1 deferred/2", false, 1, first},
		{"nothing", "unknown", "uncertain", Uncertain, "no_answer", 1, 1, "started/1 uncertain/1", false, 0, 0},
		{"nothing", "unreadable", "uncertain", Uncertain, "bad_answer", 1, 1, "started/1 uncertain/1", false, 0, 0},
		{"nothing", "other", "uncertain", Uncertain, "no_answer", 1, 1, "started/1 uncertain/1", false, 0, 0},
		{"nothing", "unknown", "error", RetryLater, "no_answer", 1, 1, "started/1 deferred/1", true, 0, first},
		{"nothing", "unreadable", "error", RetryLater, "bad_answer", 1, 1, "started/1 deferred/1", true, 0, first},
		{"nothing", "unknown, ok", "again", Done, "", 2, 2, "started/1 succeeded/2", true, 0, 0},
		{"nothing", "unknown", "again", RetryLater, "no_answer", 3, 5, "started/1 deferred/3", true, 0, first},
		{"nothing", "unknown, ok", "again, uncertain", Uncertain, "no_answer", 1, 2, "started/1 uncertain/1", false, 0, 0},
		{"nothing", "unknown, ok", "again, error", RetryLater, "no_answer", 1, 2, "started/1 deferred/1", true, 0, first},
		{"nothing", "unknown, refused", "again", Uncertain, "no_answer", 2, 3, "started/1 uncertain/2", true, 0, 0},
		{"nothing", "unknown, refused", "again, again, error", RetryLater, "no_answer", 2, 3, "started/1 deferred/2", true, 0, first},
		{"nothing", "unknown, busy, ok", "again", Done, "", 3, 3, "started/1 succeeded/3", true, 0, 0},
		{"nothing", "unknown, busy", "again", RetryLater, "busy", 3, 3, "started/1 deferred/3", true, 0, first},
		{"nothing", "unknown, busy, refused", "again", Uncertain, "no_answer", 3, 4, "started/1 uncertain/3", true, 0, 0},
		{"nothing", "unknown, held", "again", RetryLater, "held", 2, 2, "started/1 deferred/2", true, 1, first},
		// A worker died between started and the outcome.
		{"interrupted", "ok", "again", Done, "", 1, 1, "started/1 started/2 succeeded/2", true, 0, 0},
		{"interrupted", "ok", "uncertain", Uncertain, "interrupted", 0, 1, "started/1 uncertain/1", false, 0, 0},
		{"interrupted", "ok", "error", RetryLater, "interrupted", 0, 1, "started/1 deferred/1", true, 0, first},
		{"interrupted", "refused", "again", Uncertain, "interrupted", 1, 2, "started/1 started/2 uncertain/2", true, 0, 0},
		{"interrupted", "busy", "again", RetryLater, "busy", 3, 3, "started/1 started/2 deferred/4", true, 0, first},
		{"interrupted", "held", "again", RetryLater, "held", 1, 1, "started/1 started/2 deferred/2", true, 1, first},
		{"interrupted", "unknown", "again, uncertain", Uncertain, "no_answer", 1, 2, "started/1 started/2 uncertain/2", true, 0, 0},
		// It waited after a busy upstream: nothing happened.
		{"busy", "ok", "", Done, "", 1, 0, "started/1 deferred/1 started/2 succeeded/2", false, 0, 0},
		{"busy", "refused", "", Refused, "refused", 1, 0, "started/1 deferred/1 started/2 failed/2", false, 0, 0},
		{"busy", "busy", "", RetryLater, "busy", 3, 0, "started/1 deferred/1 started/2 deferred/4", false, 0, second},
		{"busy", "busy 2m", "", RetryLater, "busy", 1, 0, "started/1 deferred/1 started/2 deferred/2", false, 0, 2 * time.Minute},
		{"busy", "held", "", RetryLater, "held", 1, 0, "started/1 deferred/1 started/2 deferred/2", false, 1, first},
		// A call of unknown fate is behind it, and a busy upstream after that.
		{"busy after unknown", "ok", "again", Done, "", 1, 1, "started/1 deferred/1 started/2 succeeded/2", true, 0, 0},
		{"busy after unknown", "ok", "uncertain", Uncertain, "no_answer", 0, 1, "started/1 deferred/1 uncertain/1", true, 0, 0},
		{"busy after unknown", "ok", "error", RetryLater, "no_answer", 0, 1, "started/1 deferred/1 deferred/1", true, 0, second},
		{"busy after unknown", "refused", "again", Uncertain, "no_answer", 1, 2, "started/1 deferred/1 started/2 uncertain/2", true, 0, 0},
		// It waited after the account was refused, and nobody succeeded meanwhile.
		{"held", "ok", "", Done, "", 1, 0, "started/1 deferred/1 started/2 succeeded/2", false, 0, 0},
		{"held", "held", "", RetryLater, "held", 1, 0, "started/1 deferred/1 started/2 deferred/2", false, 1, first},
		{"held four times", "held", "", RetryLater, "held", 1, 0, "started/1 deferred/1 started/2 deferred/2", false, 4, first},
		{"held four times", "refused", "", Refused, "refused", 1, 0, "started/1 deferred/1 started/2 failed/2", false, 4, 0},
		// It waited after a call of unknown fate.
		{"unknown", "ok", "again", Done, "", 1, 1, "started/1 deferred/1 started/2 succeeded/2", true, 0, 0},
		{"unknown", "ok", "uncertain", Uncertain, "no_answer", 0, 1, "started/1 deferred/1 uncertain/1", false, 0, 0},
		{"unknown", "ok", "error", RetryLater, "no_answer", 0, 1, "started/1 deferred/1 deferred/1", true, 0, second},
		{"unknown", "refused", "again", Uncertain, "no_answer", 1, 2, "started/1 deferred/1 started/2 uncertain/2", true, 0, 0},
	} {
		name := fmt.Sprintf("after %s, calls %s, looks %s", c.before, c.results, c.looks)
		synctest.Test(t, func(t *testing.T) {
			h := newHarness(c.results, c.looks)
			h.before(t, c.before)
			got := h.deliver(t.Context())
			want := outcome{calls: c.calls, looks: c.looked, events: c.events, wait: c.wait,
				Result: Result[string]{Verdict: c.verdict, Reason: c.reason, AfterUnknown: c.afterUnknown, HeldCount: c.held}}
			if diff := cmp.Diff(summary(want), summary(got)); diff != "" {
				t.Errorf("%s (-want +got):\n%s\njournal: %q", name, diff, h.journal)
			}
		})
	}
}

// summary is what the table compares.
func summary(o outcome) string {
	return fmt.Sprintf("%s %s\ncalls %d, looks %d\nevents %s\nafter unknown %t, held %d, waits %v",
		o.Verdict, o.Reason, o.calls, o.looks, o.events, o.AfterUnknown, o.HeldCount, o.wait)
}

// What must hold whatever was before, calls come to and looks show.
func TestNoMixtureOfResultsMakesACallThatIsNotSafe(t *testing.T) {
	results := []string{"ok", "refused", "busy", "busy 8s", "held", "unknown", "other"}
	looks := []string{"again", "again, uncertain", "again, error", "uncertain", "error"}
	synctest.Test(t, func(t *testing.T) {
		for _, before := range []string{"nothing", "interrupted", "busy", "busy after unknown", "held four times", "unknown"} {
			for _, first := range results {
				for _, second := range results {
					for _, answers := range looks {
						h := newHarness(first+", "+second, answers)
						h.before(t, before)
						got := h.deliver(t.Context())
						if fault := unsafe(h, got, before); fault != "" {
							t.Fatalf("after %s, calls %s, %s, looks %s: %s\n%s\njournal: %q", before, first, second, answers, fault, summary(got), h.journal)
						}
					}
				}
			}
		}
	})
}

// unsafe says which rule the journal of one delivery breaks; "" means no rule.
func unsafe(h *harness, o outcome, before string) string {
	attempts := 0
	if before != "nothing" {
		attempts = 1
	}
	begun, last := false, ""
	unknown := strings.Contains(before, "unknown") || strings.Contains(before, "interrupted")
	for _, entry := range h.journal {
		switch what, result, _ := strings.Cut(entry, " "); {
		case entry == "store started":
			begun = true
		case what == "call":
			attempts++
			switch {
			case !begun:
				return "a call without a stored started"
			case unknown && !strings.HasSuffix(last, "look"):
				return "a call after one of unknown fate without a look right before it"
			case last == "call ok" || last == "call refused" || strings.HasPrefix(last, "call held"):
				return "a call after one that ends a delivery"
			}
			unknown = unknown || result == "unknown" || result == "unreadable" || result == "other"
		}
		if entry != "store started" { // a look may be followed by the announcement
			last = entry
		}
	}
	states := h.log.States()
	switch end := states[len(states)-1]; {
	case unknown && end == messages.Failed:
		return "failed, with a call of unknown fate behind it"
	case !strings.HasSuffix(o.events, fmt.Sprintf("/%d", attempts)):
		return fmt.Sprintf("the last event does not count %d calls", attempts)
	case o.calls > policy.Tries:
		return "more calls than a delivery has tries"
	case unknown && o.Verdict != Uncertain && !o.AfterUnknown:
		return "the outcome does not say that a call was of unknown fate"
	}
	return ""
}
