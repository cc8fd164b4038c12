package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"errand/internal/sandbox"
	"errand/pkg/messages"
)

// A look at the list at some age shows what became of an enrollment, and the event continues the request's trace.
func TestALaterLookupResolvesAnUncertainEnrollment(t *testing.T) {
	tomorrow := time.Now().Add(100 * 365 * 24 * time.Hour).Format(time.DateTime)
	for _, c := range []struct {
		name, kind, link, decision string
		outcome                    string
		records                    int
		after                      time.Duration // the uncertain event
	}{
		{"not made", sandbox.Cut, "", "", "failed", 0, 24 * time.Hour},
		{"made late", sandbox.Delay, tomorrow, "", "succeeded", 1, time.Minute},
		{"link lost and approved", sandbox.AcceptCut, tomorrow, sandbox.Approve, "succeeded", 1, time.Minute},
		{"link lost and declined", sandbox.AcceptCut, tomorrow, sandbox.Decline, "failed", 1, time.Minute},
		{"link lost and cancelled", sandbox.AcceptCut, tomorrow, sandbox.Abandon, "failed", 1, time.Minute},
		{"link lost and expired", sandbox.AcceptCut, "", "", "failed", 1, time.Hour},
		{"link lost and undecided", sandbox.AcceptCut, tomorrow, "", "succeeded", 1, 24 * time.Hour},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.after > time.Hour {
				full(t)
			}
			inBubble(t, func(t *testing.T, b *bubble) {
				var more []string
				if c.link != "" {
					more = []string{"link_expired_at", c.link}
				}
				was := b.uncertain(c.kind, more...)
				if c.decision != "" {
					b.decide("order-r1", c.decision)
				}
				calls := b.calls("enroll")
				b.runAt(was.at(t).Add(c.after-30*time.Second), 3*time.Minute)
				e := b.wantOne("mandate.enroll.resolved.r1")
				records, ok := e.Body["evidence"].([]any)
				errorIf(t, !ok || len(records) != c.records || e.Body["outcome"] != c.outcome || e.Body["by"] != "transaction_list",
					"want %s by transaction_list and %d records: %s", c.outcome, c.records, e.Raw)
				for _, field := range []string{"request_id", "order_number", "fingerprint", "attempt", "lane"} {
					if e.Body[field] == nil || e.Body[field] != was.Body[field] {
						t.Errorf("%s is %v, of the uncertain event %v", field, e.Body[field], was.Body[field])
					}
				}
				took := e.at(t).Sub(was.at(t))
				errorIf(t, took < c.after || took > c.after+2*time.Minute, "resolved after %v, want %v", took, c.after)
				now := b.calls("enroll")
				errorIf(t, now != calls, "%d calls to enroll on the way", now-calls)
				equal(t, "traceparent", e.Header.Get("traceparent"), publisherContext)
			})
		})
	}
}

// A list that writes UTC where Asia/Kuala_Lumpur is configured shows every record eight hours before its call. Its offset is learned
// from the enrollment that succeeded, and the program says so.
func TestAListInAnotherZoneResolvesAnUncertainEnrollment(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		b.box.Close()
		b.box = sandbox.New(sandbox.Options{Location: time.UTC})
		b.next = b.box
		was := b.uncertain(sandbox.AcceptCut)
		b.decide("order-r1", sandbox.Approve)
		b.runAt(was.at(t).Add(30*time.Second), 2*time.Minute)
		e := b.wantOne("mandate.enroll.resolved.r1")
		errorIf(t, e.Body["outcome"] != "succeeded" || e.evidence() != 1, "want succeeded and the one record: %s", e.Raw)
		errorIf(t, !strings.Contains(b.logs.String(), "in UTC+00:00, not in MANDATE_TIMEZONE"), "the log does not say so:\n%s", b.logs)
	})
}

// Each age is looked at once, however often the program or the server starts; of the ages
// that pass while no program runs the last one is made up for.
func TestLookupsGoOnWhereAnotherProgramStopped(t *testing.T) {
	full(t)
	inBubble(t, func(t *testing.T, b *bubble) {
		began := b.uncertain(sandbox.Cut).at(t)
		seen := time.Now()
		looks := func(want int, what string) {
			t.Helper()
			got := len(b.lookUps(seen))
			fatalIf(t, got != want, "%s: %d looks, want %d\n%s", what, got, want, b.logs)
		}
		b.runAt(began, 9*time.Minute)
		looks(1, "after a minute")
		b.runAt(time.Now(), 10*time.Minute)
		looks(3, "a start makes up for the last age, and ten minutes pass")
		must(t, b.nats.Restart())
		b.runAt(began.Add(20*time.Hour), 10*time.Minute)
		looks(4, "one for all the ages that passed")
		b.wantNone("mandate.enroll.resolved.*")
		b.runAt(began.Add(30*time.Hour), time.Minute) // nobody ran at a day's age
		looks(5, "after a day")
		e := b.wantOne("mandate.enroll.resolved.r1")
		errorIf(t, e.Body["outcome"] != "failed", "body: %s", e.Raw)
		b.runAt(time.Now(), 2*time.Minute)
		looks(5, "what was resolved")
	})
}

// Two programs look at thirty enrollments: each is resolved once, and looked at slowly.
func TestOfTwoProgramsOneResolves(t *testing.T) {
	full(t)
	inBubble(t, func(t *testing.T, b *bubble) {
		const n = 30
		b.uncertain(sandbox.Cut)
		b.fault(sandbox.Fault{Operation: "enroll", Kind: sandbox.Cut, Times: n})
		b.request(enrollOp, "many", n, "on_unknown", "report")
		b.run(b.mandates(), 24*time.Hour, b.published("mandate.enroll.uncertain.*", n+1)) // a hold takes its time
		time.Sleep(25 * time.Hour)                                                        // all of them are due at once
		seen := time.Now()
		stop := b.running(b.mandates())
		b.run(b.mandates(), 10*time.Minute, nil)
		stop()
		for i := range n {
			e := b.wantOne(fmt.Sprintf("mandate.enroll.resolved.many%d", i))
			errorIf(t, e.Body["outcome"] != "failed", "body: %s", e.Raw)
		}
		at := b.lookUps(seen)
		fatalIf(t, len(at) < n+1 || len(at) > 2*(n+1), "%d looks at %d enrollments by two programs", len(at), n+1)
		for i := range at[:max(len(at)-10, 0)] { // each takes four a second
			took := at[i+10].at.Sub(at[i].at)
			fatalIf(t, took < time.Second, "ten looks in %v", took)
		}
		logs := b.logs.String()
		errorIf(t, strings.Contains(logs, `"level":"error"`) || strings.Contains(logs, "could not be looked up"), "%s", b.logs)
	})
}

// What was resolved is an outcome like any other for a request that comes again: it leaves no other dead letter than the uncertain
// one's, and other contents are another request.
func TestARequestThatComesAgainAfterItWasResolved(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		b.uncertain(sandbox.AcceptCut)
		b.runAt(time.Now().Add(2*time.Hour), time.Minute)
		b.wantOne("mandate.enroll.resolved.r1")
		made := b.box.Enrolled("order-r1")
		b.publish("mandate.enroll.requested", enrollment("r1", "on_unknown", "report"))
		b.publish("mandate.enroll.requested", enrollment("r1", "on_unknown", "report", "payer_name", "Somebody Else"))
		b.run(b.mandates(), time.Minute, b.published("mandate.enroll.failed.*", 1))
		e := b.wantOne("mandate.enroll.failed.*")
		errorIf(t, e.reason() != "conflict" || e.Body["conflicts_with"] != "r1", "body: %s", e.Raw)
		letters := b.events("dead.>")
		errorIf(t, len(letters) != 2, "%d dead letters, want the uncertain one's and the conflict's", len(letters))
		equal(t, "enrollments", b.box.Enrolled("order-r1"), made)
		b.wantOne("mandate.enroll.resolved.r1")
		b.queueEmpty("MANDATE_REQUESTS")
	})
}

// The uncertain event is older than the resolved one and goes first: then a request that
// comes again is done with, and leaves no dead letter.
func TestARequestThatComesAgainWhenOnlyItsResolutionIsLeft(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		b.publish("mandate.enroll.resolved.r1", &messages.EnrollResolved{Common: messages.Common{RequestID: "r1",
			At: messages.Time{Time: time.Now()}, Attempt: 1},
			Outcome: messages.Succeeded, By: messages.ByTransactionList, OrderNumber: "order-r1"})
		b.publish("mandate.enroll.requested", enrollment("r1"))
		b.run(b.mandates(), time.Minute, nil)
		b.queueEmpty("MANDATE_REQUESTS")
		letters, calls := b.events("dead.>"), b.calls("enroll")
		errorIf(t, len(letters) != 0 || calls != 0, "%d dead letters, %d calls", len(letters), calls)
	})
}

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
			began := b.uncertain(sandbox.Cut).at(t)
			if f.Operation = "transactions"; f.Kind != "" {
				b.fault(f)
			} else {
				b.next = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { r.URL.RawQuery = ""; b.box.ServeHTTP(w, r) })
			}
			time.Sleep(time.Until(began.Add(24*time.Hour - 3*time.Minute)))
			b.publish("mandate.enroll.requested", enrollment("r2"))
			b.run(b.mandates(), 10*time.Minute, nil)
			b.wantNone("mandate.enroll.resolved.*")
			e := b.wantOne("mandate.enroll.succeeded.r2")
			errorIf(t, e.at(t).Sub(began) > 24*time.Hour, "the other one waited until %s", e.Body["at"])
			errorIf(t, strings.Contains(b.logs.String(), "no more requests are taken"), "the list held the program:\n%s", b.logs)
			b.next = b.box
			b.box.ClearFaults("*")
			b.runAt(began.Add(48*time.Hour), 3*time.Minute)
			e = b.wantOne("mandate.enroll.resolved.r1")
			errorIf(t, e.Body["outcome"] != "failed", "body: %s", e.Raw)
		})
	}
}

// While the program is held, no lookup is made for what is uncertain.
func TestNothingIsLookedUpWhileTheProgramIsHeld(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		began := b.uncertain(sandbox.Cut).at(t)
		seen := time.Now()
		b.script = failing(reply{status: http.StatusUnauthorized}, began.Add(30*time.Minute), nil)
		b.publish("mandate.enroll.requested", enrollment("r2"))
		b.publish("mandate.enroll.requested", enrollment("r3"))
		b.run(b.mandates(), time.Until(began.Add(29*time.Minute)), nil)
		equal(t, "looks while the program was held", len(b.lookUps(seen)), 0)
		b.run(b.mandates(), 10*time.Minute, nil)
		b.wantOne("mandate.enroll.succeeded.r2")
		errorIf(t, len(b.lookUps(seen)) == 0, "no look after the hold")
	})
}
