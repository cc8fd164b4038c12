package e2e

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"errand/internal/sandbox"
)

// lists counts the looks at the transaction list from now on, when they were.
type lists struct {
	mu sync.Mutex
	at []time.Time
}

func (l *lists) seen() []time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]time.Time(nil), l.at...)
}

// look is a hook that notes each call under an order number.
func (l *lists) look(r *http.Request) int {
	if strings.HasSuffix(r.URL.Path, "/transactions") && r.URL.Query().Get("order_number") != "" {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.at = append(l.at, time.Now())
	}
	return 0
}

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
