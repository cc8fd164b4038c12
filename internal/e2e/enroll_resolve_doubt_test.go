package e2e

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"errand/internal/sandbox"
)

// A list that cannot be read, is not narrowed, or does not show what it counts leaves an
// enrollment uncertain; it stops no other one, and when it works again it is believed.
func TestAListThatProvesNothingResolvesNothing(t *testing.T) {
	full(t)
	empty := func(meta string) sandbox.Fault {
		return sandbox.Fault{Kind: sandbox.Status, Status: 200, Body: []byte(`{"data":[],"links":{"next":null},"meta":` + meta + `}`)}
	}
	for name, f := range map[string]sandbox.Fault{
		"out of order":           {Kind: sandbox.Status, Status: 500},
		"not shown to us":        {Kind: sandbox.Status, Status: 403},
		"not there":              {Kind: sandbox.Status, Status: 404},
		"overloaded":             {Kind: sandbox.Status, Status: 503},
		"unreadable":             {Kind: sandbox.Garbage},
		"empty for everybody":    empty(`{}`),
		"counts more than shown": empty(`{"total":3}`),
		"not narrowed":           {},
	} {
		runInBubble(t, name, func(t *testing.T, b *bubble) {
			began := stamp(t, b.uncertain(sandbox.Cut))
			if f.Operation = "transactions"; f.Kind != "" {
				b.fault(f)
			} else {
				b.next = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { r.URL.RawQuery = ""; b.box.ServeHTTP(w, r) })
			}
			time.Sleep(time.Until(began.Add(24*time.Hour - 3*time.Minute)))
			b.publish("mandate.enroll.requested", enrollment("r2"))
			b.run(b.mandates(), 10*time.Minute, nil)
			if got := b.events("mandate.enroll.resolved.*"); len(got) != 0 {
				t.Fatalf("resolved by such a list: %s", got[0].Raw)
			}
			if e := b.wantOne("mandate.enroll.succeeded.r2"); stamp(t, e).Sub(began) > 24*time.Hour {
				t.Errorf("the other one waited until %s", e.Body["at"])
			}
			if strings.Contains(b.logs.String(), "no more requests are taken") {
				t.Errorf("the list held the program:\n%s", b.logs)
			}
			b.next = b.box
			b.box.ClearFaults()
			b.runAt(began.Add(48*time.Hour), 3*time.Minute)
			if e := b.wantOne("mandate.enroll.resolved.r1"); e.Body["outcome"] != "failed" {
				t.Errorf("body: %s", e.Raw)
			}
		})
	}
}

// While the program is held, no lookup is made for what is uncertain.
func TestNothingIsLookedUpWhileTheProgramIsHeld(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		began := stamp(t, b.uncertain(sandbox.Cut))
		seen := time.Now()
		b.script = answers(http.StatusUnauthorized, began.Add(30*time.Minute))
		b.publish("mandate.enroll.requested", enrollment("r2"))
		b.publish("mandate.enroll.requested", enrollment("r3"))
		b.run(b.mandates(), time.Until(began.Add(29*time.Minute)), nil)
		if got := len(b.lookUps(seen)); got != 0 {
			t.Errorf("%d looks while the program was held", got)
		}
		b.run(b.mandates(), 10*time.Minute, nil)
		b.wantOne("mandate.enroll.succeeded.r2")
		if len(b.lookUps(seen)) == 0 {
			t.Error("no look after the hold")
		}
	})
}
