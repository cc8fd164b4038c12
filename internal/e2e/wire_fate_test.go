package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// A request's outcome is what the sandbox knows, whatever happens to its call on the
// wire: reported as done only if it was, as not done only if it was not, else uncertain.
func TestEveryFaultOfAConnectionIsReportedAsWhatItIs(t *testing.T) {
	full(t)
	for _, f := range lineFaults() {
		for _, c := range []struct {
			operation, onUnknown string
		}{{"enroll", "report"}, {"enroll", "retry"}, {"send", "report"}} {
			t.Run(fmt.Sprintf("%s, %s, %s", f.name, c.operation, c.onUnknown), func(t *testing.T) {
				inWire(t, func(t *testing.T, w *wire, b *bubble) {
					w.pick = once(c.operation, f.fault)
					e := w.run(b, c.operation, c.onUnknown)
					state, reason, done := f.expect(c.operation, c.onUnknown)
					if string(e.state()) != state || e.reason() != reason {
						t.Errorf("published %s, %s, want %s, %s: %s", e.state(), e.reason(), state, reason, e.Raw)
					}
					if got := w.did(c.operation); got != done {
						t.Errorf("the sandbox did it %d times, want %d: %s", got, done, e.Raw)
					}
					if evidence, _ := e.Body["evidence"].([]any); len(evidence) > 0 != (reason == "link_lost") {
						t.Errorf("evidence: %s", e.Raw)
					}
					if again := c.onUnknown == "retry" && !f.done && strings.HasSuffix(f.reason, "answer"); again != (e.Body["after_unknown"] == true) {
						t.Errorf("after_unknown: %s", e.Raw)
					}
				})
			})
		}
	}
}

// The look-up that shows what became of an enrollment meets the same faults, and the
// evidence is right all the same.
func TestEveryFaultOfTheLookUpIsOvercome(t *testing.T) {
	full(t)
	for _, f := range lineFaults() {
		for done, onUnknown := range map[bool]string{true: "report", false: "retry"} {
			t.Run(fmt.Sprintf("%s, enrolled: %t", f.name, done), func(t *testing.T) {
				inWire(t, func(t *testing.T, w *wire, b *bubble) {
					calls, lists := once("enroll", func(c *call) bool {
						if done {
							c.work()
						}
						return c.reset()
					}), times(6, "transactions", f.fault) // all the tries of a read, and one more
					w.pick = func(operation string) fault {
						if f := calls(operation); f != nil {
							return f
						}
						return lists(operation)
					}
					e := w.run(b, "enroll", onUnknown)
					state, reason, enrolled := lineFault{done: done, reason: "no_answer"}.expect("enroll", onUnknown)
					if string(e.state()) != state || e.reason() != reason {
						t.Errorf("published %s, %s, want %s, %s: %s", e.state(), e.reason(), state, reason, e.Raw)
					}
					if got := w.did("enroll"); got != enrolled {
						t.Errorf("enrolled %d times, want %d", got, enrolled)
					}
				})
			})
		}
	}
}
