package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"errand/internal/bus"
	"errand/internal/callback"
	"errand/internal/programs"
	"errand/internal/sandbox"
	"errand/pkg/clients"
	"errand/pkg/messages"
)

// seldom is a poller that reads the list at the start, and then long after the test.
func (b *bubble) seldom() *programs.TransactionPoller {
	p := b.transactions()
	p.Interval, p.FullInterval, p.ListRate = 1000*time.Hour, 1000*time.Hour, 2
	return p
}

// callbackStore is where the receiver stores callbacks.
func (b *bubble) callbackStore() bus.EventStore {
	b.t.Helper()
	publisher, err := bus.NewPublisher(b.js.Conn())
	must(b.t, err)
	return bus.EventStore{Publisher: publisher, Source: "/errand/callback-receiver"}
}

// calledBack stores what the receiver stores of a callback.
func (b *bubble) calledBack(id, digest string) {
	b.t.Helper()
	body := &messages.CallbackBody{Method: "POST", Digest: digest, Checksum: messages.ChecksumUnknown}
	must(b.t, b.callbackStore().Callback(b.t.Context(), id, body))
}

// An enrollment that nothing was decided of is looked up at growing ages until its link has
// expired and a day more; what was decided, once more at most.
func TestAnOpenEnrollmentIsLookedUpUntilItIsDecided(t *testing.T) {
	full(t)
	for name, c := range map[string]struct {
		link     time.Duration // 0 means that no expiry is named
		decision string
		after    time.Duration
		found    string
		within   time.Duration // of the decision, or of the link's end
		most     int           // looks
	}{
		"approved":         {0, sandbox.Approve, 28 * time.Minute, "approved", 2*time.Minute + 5*time.Second, 4},
		"not decided":      {0, "", time.Hour, "expired", 61 * time.Minute, 6},
		"a link for hours": {10 * time.Hour, sandbox.Decline, 5 * time.Hour, "failed", time.Hour + 5*time.Second, 7},
	} {
		runInBubble(t, name, func(t *testing.T, b *bubble) {
			var more []string
			if c.link > 0 {
				zone, err := time.LoadLocation("Asia/Kuala_Lumpur")
				must(t, err)
				more = []string{"link_expired_at", time.Now().Add(c.link).In(zone).Format(time.DateTime)}
			}
			b.publish("mandate.enroll.requested", enrollment("r1", more...))
			b.run(b.mandates(), time.Hour, b.ended("mandate.enroll", "r1"))
			found := b.wantOne("mandate.enroll.succeeded.r1").at(t)
			b.beside.Go(func() {
				time.Sleep(time.Until(found.Add(c.after)))
				if c.decision != "" {
					noError(t, b.box.Decide("order-r1", c.decision))
				}
			})
			b.run(b.seldom(), 8*time.Hour, func() bool { return b.count("mandate.application."+c.found+".r1") > 0 })
			b.run(b.seldom(), 100*time.Minute, nil) // it is not looked up again, though another age comes
			events := b.events("mandate.application." + c.found + ".r1")
			fatalIf(t, len(events) != 1, "%d events, of %v", len(events), b.subjects("mandate.application.>"))
			late := events[0].at(t).Sub(found.Add(c.after))
			errorIf(t, late > c.within || late < 0, "published %v after the decision, want %v at most", late, c.within)
			equal(t, "found by", events[0].Body["by"], "look_up")
			n := len(b.lookUps(epoch))
			errorIf(t, n > c.most, "%d looks, want %d at most", n, c.most)
		})
	}
}

// A callback has its request looked up at once, many of them a bounded number of times. Half an hour later the service calls
// before it lists what it calls of: the request is looked up again.
func TestACallbackHasItsRequestLookedUpAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		b.idle = 0
		for _, r := range []string{"r1", "r2"} {
			b.publish("mandate.enroll.requested", enrollment(r))
			b.run(b.mandates(), time.Hour, b.ended("mandate.enroll", r))
		}
		wantApproved := func(id string, since time.Time, within time.Duration) {
			t.Helper()
			e := b.wantOne("mandate.application.approved." + id)
			late := e.at(t).Sub(since)
			errorIf(t, late > within || e.Body["by"] != "callback", "published %v after the callback, by %v", late, e.Body["by"])
		}
		stop := b.running(b.seldom())
		time.Sleep(time.Minute) // before the first scheduled look
		decided := time.Now()
		b.decide("order-r1", sandbox.Approve)
		for i := range 64 {
			b.calledBack("r1", fmt.Sprintf("%02d%062d", i, 0))
			time.Sleep(500 * time.Millisecond)
		}
		b.calledBack("stranger", fmt.Sprintf("%064d", 0))
		time.Sleep(18 * time.Second)
		wantApproved("r1", decided, 3*time.Second)
		n := len(b.lookUps(epoch))
		errorIf(t, n < 3 || n > 6, "%d looks in half a minute of callbacks, want one every ten seconds, and one for the list's offset", n)

		time.Sleep(18 * time.Minute) // the next scheduled look is ten minutes later
		called := time.Now()
		b.calledBack("r2", fmt.Sprintf("%064d", 1))
		time.Sleep(30 * time.Second)
		b.decide("order-r2", sandbox.Approve)
		time.Sleep(2 * time.Minute)
		stop()
		wantApproved("r2", called, 63*time.Second)
	})
}

// receive stores callbacks as callback-receiver does, which needs a network.
func (b *bubble) receive() {
	b.t.Helper()
	b.callbacks = &callback.Handler{Secrets: []clients.Secret{clients.NewSecret(callbackSecret)}, Store: b.callbackStore().Callback}
}

// defaultTransactions is transaction-poller with its defaults.
func (b *bubble) defaultTransactions() *programs.TransactionPoller {
	return &programs.TransactionPoller{Common: b.common(), MandateAPI: b.mandates().MandateAPI, Interval: 30 * time.Second,
		FullInterval: 24 * time.Hour, ListRate: listRate}
}

// listRate is the default of TRANSACTIONS_RATE.
const listRate = 2

// between counts the calls for the transaction list in a while.
func (b *bubble) between(from, to time.Time) int {
	return len(b.exchanges(func(x exchange) bool { return x.operation == "transactions" && !x.at.Before(from) && x.at.Before(to) }))
}

// wantListRate fails the test when there were more calls for the list in any minute than the rate allows.
func (b *bubble) wantListRate() {
	b.t.Helper()
	const most = 60*listRate + 1
	calls := b.of("transactions")
	for i := most; i < len(calls); i++ {
		fatalIf(b.t, calls[i].at.Sub(calls[i-most].at) < time.Minute, "more than %d calls in a minute from %v on", most, calls[i-most].at)
	}
}

// step is something that happens at a time.
type step struct {
	at time.Time
	do func()
}

// Enrollments come for an hour and a quarter, and each payer decides within the hour of the link, some never;
// nine in ten decisions are called back, in the second half of the time some seconds before they
// are listed. Every decision is published within a minute of its being listed.
func TestEveryDecisionIsPublishedWithinAMinute(t *testing.T) {
	full(t)
	inBubble(t, func(t *testing.T, b *bubble) {
		const (
			n    = 200
			come = 30 * time.Minute
		)
		b.receive()
		b.set(func(s *sandbox.Settings) { s.CallbackLost, s.CallbackForged = 0.1, 0.05 })
		began, draw := time.Now(), rand.New(rand.NewPCG(5, 5))
		steps := []step{{began.Add(come), func() {
			b.set(func(s *sandbox.Settings) { s.ListDelay = sandbox.Duration(20 * time.Second) })
		}}}
		for i := range n {
			id, asked := fmt.Sprint("r", i), began.Add(time.Minute+time.Duration(draw.Int64N(int64(come))))
			steps = append(steps, step{asked, func() { b.publish("mandate.enroll.requested", enrollment(id)) }})
			if decision := decisionOf(i); decision != "" && decision != sandbox.Expire {
				steps = append(steps, step{asked.Add(10*time.Second + time.Duration(draw.Int64N(int64(58*time.Minute)))), func() {
					noError(t, b.box.Decide("order-"+id, decision))
				}})
			}
		}
		slices.SortFunc(steps, func(x, y step) int { return x.at.Compare(y.at) })
		enroll := b.mandates()
		enroll.CallbackURL, enroll.CallbackSecret = "http://127.0.0.1:8088/mandates", callbackSecret
		poller := b.defaultTransactions()
		poller.Interval = 20 * time.Second // with the default the longest takes 57 s, which leaves no room
		stop := b.running(enroll, poller)
		for _, s := range steps {
			time.Sleep(time.Until(s.at))
			s.do()
		}
		time.Sleep(time.Until(began.Add(come + time.Hour + 5*time.Minute))) // the last link has expired
		decided := time.Now()
		var approved []string
		for _, r := range b.box.Oracle(sandbox.Query{Records: true}).Records {
			if r.States[len(r.States)-1].State == "Approved" {
				approved = append(approved, r.OrderNumber)
			}
		}
		bounce(t, b.box, 0, approved)
		time.Sleep(5 * time.Minute)
		stop()
		first := wantEachState(t, b.box, append(b.events("mandate.application.>"), b.events("mandate.deduction.>")...))
		found := b.wantWithin(first, time.Minute)
		b.wantListRate()
		made := b.between(began, decided)
		t.Logf("%d decisions by %v; %.1f calls for each, %.0f an hour, %d of them look-ups", found.decisions, found.by,
			float64(made)/float64(found.decisions),
			float64(made)/decided.Sub(began).Hours(), len(b.lookUps(epoch)))
		t.Logf("callbacks %+v", b.totals().Callbacks)
	})
}

// decisionsFound is how decisions were found.
type decisionsFound struct {
	decisions int
	by        map[string]int
}

// wantWithin wants the last state of each record that it was not made in to be published within a time of its being
// listed, and logs how long that took.
func (b *bubble) wantWithin(first map[recordState]published, most time.Duration) decisionsFound {
	b.t.Helper()
	took, found := map[string][]time.Duration{}, decisionsFound{by: map[string]int{}}
	for _, r := range b.box.Oracle(sandbox.Query{Records: true}).Records {
		for i, s := range r.States {
			p, ok := first[recordState{r.ID, strings.ToLower(s.State)}]
			if !ok {
				continue // wantEachState has said so, or it was over soon
			}
			late, what := p.At.Sub(s.Since), r.Type+" New"
			if i > 0 || r.Type == "Deduction" {
				what = r.Type + " decided"
			}
			if i > 0 {
				found.decisions++
				found.by[p.by]++
				what += " by " + p.by
			}
			took[what] = append(took[what], late)
			errorIf(b.t, i > 0 && late > most, "%s of %s, listed at %v, is published %v later by %s", s.State, r.OrderNumber, s.Since, late, p.by)
		}
	}
	for what, all := range took {
		slices.Sort(all)
		b.t.Logf("%s: %d, median %v, 99%% %v, longest %v", what, len(all), all[len(all)/2], all[len(all)*99/100], all[len(all)-1])
	}
	return found
}

// Two thousand undecided enrollments, made within an hour, cost no more calls
// than the rate allows, and few between their looks: a list that stands still is left alone.
func TestThousandsOfOpenEnrollmentsCostNoMoreThanTheRate(t *testing.T) {
	full(t)
	inBubble(t, func(t *testing.T, b *bubble) {
		const n, come = 2_000, time.Hour
		expire := upstreamTime(time.Now().Add(30 * 24 * time.Hour))
		for i := range n {
			b.openEnrollment(fmt.Sprint("r", i), expire)
			time.Sleep(come / n)
		}
		stop := b.running(b.defaultTransactions())
		began := time.Now()
		var hours []int
		for range 4 {
			from := time.Now()
			time.Sleep(time.Hour)
			hours = append(hours, b.between(from, time.Now()))
		}
		stop()
		b.wantListRate()
		found := b.count("mandate.application.new.*")
		errorIf(t, found != n, "%d of %d are published\n%s", found, n, b.logs)
		idle := hours[len(hours)-1]
		errorIf(t, idle > 1000, "%d calls in an hour in which none was due", idle)
		t.Logf("calls by the hour: %v; %d look-ups of %d in %v", hours, len(b.lookUps(epoch)), len(b.of("transactions")), time.Since(began))
	})
}

// openEnrollment is an enrollment whose link is published, as the sandbox and the events have it.
func (b *bubble) openEnrollment(id, expire string) {
	answer := b.direct("/v3/mandates", enrollment(id, "portal_key", "portal-for-tests", "link_expired_at", expire))
	for _, state := range []messages.State{messages.Started, messages.Succeeded} {
		b.publish(messages.Enroll.Subject(state, id), map[string]any{"request_id": id, "at": time.Now(), "order_number": "order-" + id,
			"link_expired_at": expire, "enrollment": json.RawMessage(answer)})
	}
}
