package e2e

import (
	"strings"
	"testing"
	"time"

	"errand/internal/sandbox"
)

// Each call of a request has the same return_url, whatever is configured when it is made
// again; what the sender named stays.
func TestARequestHasOneReturnURL(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		b.fault(often(1, sandbox.Fault{Operation: "enroll", Kind: sandbox.Status, Status: 503, Headers: map[string]string{"Retry-After": "60"}}))
		b.publish("mandate.enroll.requested", enrollment("r1"))
		configured := b.mandates()
		configured.CallbackURL, configured.CallbackSecret = "https://callbacks.example.com/a/", strings.Repeat("secret-a", 4)
		b.run(configured, time.Minute, func() bool { return b.count("mandate.enroll.deferred.r1") > 0 })
		b.publish("mandate.enroll.requested", enrollment("r2", "return_url", "https://shop.example.com/back"))
		moved := b.mandates()
		moved.CallbackURL, moved.CallbackSecret = "https://callbacks.example.com/b", strings.Repeat("secret-b", 4)
		b.run(moved, time.Hour, func() bool { return b.ended("mandate.enroll", "r1")() && b.ended("mandate.enroll", "r2")() })
		b.wantEnd("mandate.enroll", "succeeded", "r1")
		b.wantEnd("mandate.enroll", "succeeded", "r2")
		var got []string
		for _, call := range b.of("enroll") {
			got = append(got, call.body["return_url"].(string))
		}
		for _, e := range b.events("mandate.enroll.started.r1") {
			got = append(got, e.Body["return_url"].(string))
		}
		of := 0
		for _, url := range got {
			switch {
			case strings.HasPrefix(url, "https://callbacks.example.com/a/r1/") && url == got[0]:
				of++
			case url != "https://shop.example.com/back":
				t.Errorf("return_url is %s", url)
			}
		}
		if of != 4 || len(got) != 5 {
			t.Errorf("got %q, want two calls and two started of r1 with one URL", got)
		}
		for _, e := range b.events("mandate.enroll.started.r2") {
			if e.Body["return_url"] != nil {
				t.Errorf("started names what the sender gave: %s", e.Raw)
			}
		}
	})
}
