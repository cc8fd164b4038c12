package e2e

import (
	"testing"
	"time"

	"errand/internal/sandbox"
)

// uncertain makes an enrollment that ends so, and another one that does not, so that
// the list is never empty. Kind is what goes wrong.
func (b *bubble) uncertain(kind string, more ...string) event {
	b.t.Helper()
	b.publish("mandate.enroll.requested", enrollment("other"))
	b.run(b.mandates(), time.Minute, b.published("mandate.enroll.succeeded.other", 1))
	f := sandbox.Fault{Operation: "enroll", Kind: kind, Times: 1}
	if kind == sandbox.Delay {
		f.Delay = sandbox.Duration(40 * time.Second) // done when its caller has left and looked twice
	}
	b.fault(f)
	b.publish("mandate.enroll.requested", enrollment("r1", append([]string{"on_unknown", "report"}, more...)...))
	b.run(b.mandates(), 5*time.Minute, b.published("mandate.enroll.uncertain.r1", 1))
	return b.wantOne("mandate.enroll.uncertain.r1")
}

// stamp is when an event says that it happened.
func stamp(t *testing.T, e event) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, e.Body["at"].(string))
	must(t, err)
	return at
}
