package e2e

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"errand/internal/sandbox"
	"errand/pkg/messages"
)

// transactionList is the upstream's list of enrollments of ours, and the pollers that publish it.
type transactionList struct {
	*installation
	made int                 // enrollments
	were map[string][]string // the states of records, by the end of their subjects; the last one is the present one
}

// installTransactions makes the installation for pollers, and n enrollments.
func installTransactions(t *testing.T, n int) *transactionList {
	t.Helper()
	l := &transactionList{were: map[string][]string{}}
	l.installation = installWith(t, failpointBuild, "TRANSACTIONS_INTERVAL=200ms", "TRANSACTIONS_FULL_INTERVAL=1s", "TRANSACTIONS_RATE=0")
	l.shrinkDuplicateWindow()
	l.enroll(n)
	return l
}

func (l *transactionList) enroll(n int) {
	l.t.Helper()
	for range n {
		id := fmt.Sprint("r", l.made)
		l.made++
		l.publish("mandate.enroll.requested", enrollment(id))
		l.were["application "+id] = []string{"new"}
	}
	p := l.start("mandate-consumer")
	l.waitOutcomes("mandate.enroll.succeeded.*", l.made, time.Minute)
	p.stop(time.Minute)
}

// decide has the payers of some enrollments decide.
func (l *transactionList) decide(from, to int) {
	l.t.Helper()
	for i := from; i < to; i++ {
		state := []string{"approved", "failed"}[i%2]
		must(l.t, l.box.Decide(fmt.Sprint("order-r", i), map[string]string{"approved": sandbox.Approve, "failed": sandbox.Decline}[state]))
		key := fmt.Sprint("application r", i)
		l.were[key] = append(l.were[key], state)
	}
}

// wantEnd wants, when pollers and one that knows the list by its events alone have caught up, each
// present state to be published once, each earlier one at most once, under its request.
func (l *transactionList) wantEnd(pollers ...*process) {
	l.t.Helper()
	pollers = append(pollers, l.start("transaction-poller"))
	l.until("each record's state to be published", 2*time.Minute, func() bool {
		there := l.subjects("mandate.application.>")
		for key, states := range l.were {
			if there["mandate.application."+states[len(states)-1]+"."+strings.TrimPrefix(key, "application ")] == 0 {
				return false
			}
		}
		return true
	})
	for _, p := range pollers {
		l.caughtUp(p)
		p.stop(time.Minute)
	}
	l.judge()
}

func (l *transactionList) judge() {
	l.t.Helper()
	got := map[string]int{}
	for _, e := range append(l.events("mandate.application.>"), l.events("mandate.deduction.>")...) {
		body := decode[messages.TransactionBody](l.t, e)
		got[fmt.Sprint(body.Kind, " ", e.id(), " ", e.state())]++
		if body.Match.Confidence != messages.MatchExact || body.OrderNumber != "order-"+e.id() || body.RequestID != e.id() {
			l.t.Errorf("%s is of %q, %+v", e.Subject, body.OrderNumber, body.Match)
		}
	}
	for key, states := range l.were {
		for i, state := range states {
			if n := got[key+" "+state]; n > 1 || n == 0 && i == len(states)-1 {
				l.t.Errorf("%s %s is published %d times", key, state, n)
			}
			delete(got, key+" "+state)
		}
	}
	if len(got) > 0 {
		l.t.Errorf("published and never so: %v", got)
	}
}

// A poller dies in its first sweep of three pages, at each of its steps; payers decide before the next
// one starts, which goes on from there.
func TestATransactionPollerSurvivesEveryCrash(t *testing.T) {
	failpointBuild.programs(t)
	for _, die := range []string{"page@2", "before publish", "publishing@40", "after publish", "after publish@3", "before mark", "after mark"} {
		t.Run(die, func(t *testing.T) {
			l := installTransactions(t, 60)
			l.start("transaction-poller", "ERRAND_FAILPOINT="+die).wantKilled()
			l.until("NATS to be done with the dead one", time.Minute, func() bool { return !slices.Contains(l.clients(), "transaction-poller") })
			l.decide(0, 30)
			l.wantEnd()
		})
	}
}

// A poller is paused, between two sweeps or while it publishes a page, until another one has published
// everything: it is fenced, notices, and works as before.
func TestAStoppedTransactionPollerPublishesNothingTwice(t *testing.T) {
	failpointBuild.programs(t)
	for _, at := range []string{"after mark", "publishing@40"} {
		t.Run(at, func(t *testing.T) {
			l := installTransactions(t, 60)
			stopped := l.start("transaction-poller", "ERRAND_FAILPOINT=stop at "+at)
			l.until("it to stand still", time.Minute, func() bool { return stopped.logged("failpoint: stopped") })
			l.decide(0, 20)
			other := l.start("transaction-poller")
			l.caughtUp(other)
			stopped.resume()
			l.caughtUp(stopped)
			other.stop(time.Minute)
			l.decide(20, 40)
			l.wantEnd(stopped)
		})
	}
}

// Two pollers publish one list while payers decide; one after the other is killed at a random time,
// or paused for a while, and started again.
func TestTwoTransactionPollersKilledAtRandomPublishEachStateOnce(t *testing.T) {
	const kills = 4
	draw := rand.New(rand.NewPCG(1, 2))
	l := installTransactions(t, 60)
	pollers := []*process{l.start("transaction-poller"), l.start("transaction-poller")}
	for n := range kills {
		wait(t.Context(), time.Duration(draw.IntN(700))*time.Millisecond)
		l.decide(10*n, 10*n+10)
		if n%3 == 2 {
			pollers[n%2].pause()
			l.caughtUp(pollers[(n+1)%2])
			pollers[n%2].resume()
			continue
		}
		pollers[n%2].kill()
		pollers[n%2] = l.start("transaction-poller")
	}
	l.wantEnd(pollers...)
}
