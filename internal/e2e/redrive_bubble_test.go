package e2e

import (
	"slices"
	"strings"
	"testing"
	"time"

	deeds "errand/internal/oncall/act"
	"errand/internal/oncall/inspect"
	"errand/internal/sandbox"
	"errand/pkg/messages"
)

// ann is somebody who acts.
func (b *bubble) ann() deeds.Requests {
	b.t.Helper()
	p, err := deeds.As("ann", "errand", b.js.Conn(), b.js)
	must(b.t, err)
	return p.Requests()
}

// redrive has a request run again, and returns the result.
func (b *bubble) redrive(id string, accept ...string) deeds.Redriven {
	b.t.Helper()
	ann := b.ann()
	letters, err := ann.Letters(b.t.Context(), []string{id}, inspect.Query{})
	must(b.t, err)
	items, err := ann.Plan(b.t.Context(), letters)
	fatalIf(b.t, err != nil || len(items) != 1, "the plan: %v %v", items, err)
	for i := range accept {
		accept[i] = inspect.Name(items[0].Sequence)
	}
	var got deeds.Redriven
	must(b.t, ann.Redrive(b.t.Context(), items, deeds.Consent{Why: "back", Accept: accept, Force: accept}, func(r deeds.Redriven) { got = r }))
	return got
}

func (b *bubble) wantStates(operation, id string, want ...string) {
	b.t.Helper()
	got := b.states(operation, id)
	errorIf(b.t, !slices.Equal(got, want), "the history of %s is %v, want %v\n%s", id, got, want, b.logs)
}

// Of a message, the batches that were accepted are never sent again, and one of unknown fate
// only where that is said by name.
func TestARedrivenMessageSendsOnlyTheBatchesThatWereNotAccepted(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		b.fault(sandbox.Fault{Operation: "send", Kind: sandbox.Status, Status: 422, Match: "m1-2@"})
		b.fault(sandbox.Fault{Operation: "send", Kind: sandbox.AcceptCut, Match: "m1-4@"})
		b.publish("mail.send.requested", message("m1", 8)) // four batches of two
		b.run(b.consumer("mail.send"), time.Minute, b.ended("mail.send", "m1"))
		b.wantEnd("mail.send", "uncertain", "m1")
		b.box.ClearFaults("*")
		calls := b.calls("send")

		if r := b.redrive("m1"); r.Class != inspect.Twice || r.Result != deeds.Done || !slices.Equal(r.Batches, []int{2}) ||
			!slices.Equal(r.Unknown, []int{3}) {
			t.Fatalf("%+v", r)
		}
		b.run(b.consumer("mail.send"), time.Minute, b.published("mail.send.uncertain.m1", 2))
		equal(t, "calls", b.calls("send")-calls, 1)
		b.wantOne("mail.batch.uncertain.m1.3") // nothing was done about it
		if r := b.redrive("m1", "m1"); r.Result != deeds.Done || len(r.Batches) != 0 || !slices.Equal(r.Unknown, []int{3}) {
			t.Fatalf("%+v", r)
		}
		b.run(b.consumer("mail.send"), time.Minute, b.ended("mail.send", "m1"))
		b.run(b.consumer("mail.send"), time.Minute, b.published("mail.send.accepted.m1", 1))
		e := b.wantOne("mail.send.accepted.m1")
		errorIf(t, number(e.Body["accepted"]) != 8 || e.Body["after_unknown"] != true, "want all of them, after one of unknown fate: %s", e.Raw)
		o := b.oracle()
		var twice []string
		for _, r := range o.Mail.Twice {
			twice = append(twice, r.Recipient)
		}
		slices.Sort(twice)
		if n := o.Calls["send"] - calls; n != 2 || !slices.Equal(twice, []string{"m1-4@example.test", "m1-5@example.test"}) {
			t.Errorf("%d calls more, want 2; twice %q, want the third batch, which was named", n, twice)
		}
		b.queueEmpty("MAIL_REQUESTS")
	})
}

// A message of which some batches were refused leaves a dead letter; where only fewer were
// accepted than sent, there is nothing to run again.
func TestAPartialMessageLeavesADeadLetter(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		b.fault(sandbox.Fault{Operation: "send", Kind: sandbox.Status, Status: 422, Match: "m1-2@"})
		b.fault(sandbox.Fault{Operation: "send", Kind: sandbox.Short, Match: "m2-0@"})
		b.publish("mail.send.requested", message("m1", 4))
		b.publish("mail.send.requested", message("m2", 4))
		b.run(b.consumer("mail.send"), time.Minute, b.published("mail.send.partial.*", 2))
		d := b.wantOne("dead.mail.send.requested")
		errorIf(t, d.Header.Get("Errand-Request-Id") != "m1" || d.Header.Get("Errand-Reason") != "refused", "the dead letter: %v", d.Header)
		b.box.ClearFaults("*")
		r := b.redrive("m1")
		fatalIf(t, r.Class != inspect.Safe || r.Result != deeds.Done, "%+v", r)
		b.run(b.consumer("mail.send"), time.Minute, b.published("mail.send.accepted.m1", 1))
		b.wantStates("mail.send", "m1", "started", "partial", "reopened", "started", "accepted")
		o := b.oracle()
		errorIf(t, o.Mail.TwiceCount != 0, "twice: %v", o.Mail.Twice)
	})
}

// An enrollment of unknown fate is looked up before its call: if it is listed, there is no call.
func TestARedrivenEnrollmentIsLookedUpBeforeItsCall(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		b.list()
		b.fault(sandbox.Fault{Operation: "enroll", Kind: sandbox.Cut, Times: 1})
		b.publish("mandate.enroll.requested", enrollment("r1", "on_unknown", "report", "give_up_at",
			time.Now().Add(time.Hour).UTC().Format(time.RFC3339)))
		b.run(b.mandates(), time.Minute, b.ended("mandate.enroll", "r1"))
		b.wantEnd("mandate.enroll", "uncertain", "r1")
		time.Sleep(3 * time.Hour) // its give_up_at has passed
		r := b.redrive("r1")
		fatalIf(t, r.Class != inspect.Twice || r.Result != deeds.NotDone, "nobody accepted that: %+v", r)
		b.fault(often(1, sandbox.Fault{Operation: "enroll", Kind: sandbox.Status, Status: 503}))
		r = b.redrive("r1", "r1")
		fatalIf(t, r.Result != deeds.Done, "%+v", r)
		listings := b.calls("transactions")
		b.run(b.mandates(), time.Minute, b.published("mandate.enroll.succeeded.r1", 1))
		e := b.wantOne("mandate.enroll.succeeded.r1")
		errorIf(t, e.Body["after_unknown"] != true, "want after_unknown: %s", e.Raw)
		o := b.oracle()
		errorIf(t, o.Enroll.Accepted != 2 || o.Calls["transactions"]-listings < 2,
			"%d enrolled, with another program's; the list was read %d times for two calls", o.Enroll.Accepted, o.Calls["transactions"]-listings)

		// Enrolled meanwhile by another program, and listed: no call.
		b.fault(sandbox.Fault{Operation: "enroll", Kind: sandbox.Cut, Times: 1, Match: "order-r2"})
		b.publish("mandate.enroll.requested", enrollment("r2", "on_unknown", "report"))
		b.run(b.mandates(), time.Minute, b.ended("mandate.enroll", "r2"))
		b.publish("mandate.enroll.requested", enrollment("r3", "order_number", "order-r2"))
		b.run(b.mandates(), time.Minute, b.ended("mandate.enroll", "r3"))
		calls := b.calls("enroll")
		b.redrive("r2", "r2")
		b.run(b.mandates(), time.Minute, b.published("mandate.enroll.uncertain.r2", 2))
		e = b.events("mandate.enroll.uncertain.r2")[1]
		errorIf(t, e.reason() != "link_lost" || b.calls("enroll") != calls, "want no call: %s", e.Raw)
		r = b.redrive("r2")
		errorIf(t, r.Class != inspect.WasDone || r.Result != deeds.NotDone, "listed: %+v", r)
	})
}

// What on_unknown says holds again for the calls of a redrive.
func TestARedriveAcceptsOneCallOfUnknownFateAndNoSecond(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		b.list()
		b.fault(sandbox.Fault{Operation: "enroll", Kind: sandbox.Cut})
		b.publish("mandate.enroll.requested", enrollment("r1", "on_unknown", "report"))
		b.run(b.mandates(), time.Minute, b.ended("mandate.enroll", "r1"))
		time.Sleep(2 * time.Minute) // the list has settled
		b.redrive("r1", "r1")
		b.run(b.mandates(), 5*time.Minute, nil)
		b.wantStates("mandate.enroll", "r1", "started", "uncertain", "reopened", "started", "uncertain")
		equal(t, "calls, with another program's", b.calls("enroll"), 3)
	})
}

// A request without an id runs again under the one that its queue gave, also where it is published twice.
func TestARequestWithoutAnIDRunsAgainUnderTheSameOne(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		b.fault(often(1, sandbox.Fault{Operation: "enroll", Kind: sandbox.Status, Status: 422}))
		body := enrollment("r1")
		delete(body, "request_id")
		b.publish("mandate.enroll.requested", body)
		b.run(b.mandates(), time.Minute, b.published("mandate.enroll.failed.*", 1))
		e := b.wantOne("mandate.enroll.failed.*")
		id := e.Subject[strings.LastIndexByte(e.Subject, '.')+1:]
		r := b.redrive(id)
		fatalIf(t, r.Result != deeds.Done, "%+v", r)
		b.run(b.mandates(), time.Minute, b.published("mandate.enroll.succeeded."+id, 1))
		b.wantStates("mandate.enroll", id, "started", "failed", "reopened", "started", "succeeded")
		o := b.oracle()
		errorIf(t, o.Enroll.Accepted != 1, "%d enrolled", o.Enroll.Accepted)
		b.queueEmpty("MANDATE_REQUESTS")
	})
}

// A cancelled request makes no call, leaves its dead letter, and may be corrected, or run after all.
func TestACancelledRequestMakesNoCall(t *testing.T) {
	for _, op := range correctedOperations() {
		runInBubble(t, op.operation, func(t *testing.T, b *bubble) {
			cancel := func() error {
				_, err := b.ann().Cancel(t.Context(), "", op.id, "withdrawn")
				return err
			}
			if err := cancel(); err == nil {
				t.Error("an id that nobody has seen was cancelled")
			}
			b.publish(op.operation+".requested", op.request("first"))
			must(t, cancel())
			b.run(b.consumer(op.operation), time.Minute, func() bool { return b.queued() == 0 })
			b.wantStates(op.operation, op.id, "failed")
			d := b.wantOne("dead." + op.operation + ".requested")
			errorIf(t, d.Header.Get("Errand-Reason") != "cancelled", "the dead letter: %v", d.Header)
			n := op.served(b.oracle())
			fatalIf(t, n != 0, "carried out %d times", n)
			r := b.redrive(op.id)
			errorIf(t, r.Class != inspect.Cancelled || r.Result != deeds.NotDone, "not by accident: %+v", r)
			b.publish(op.operation+".requested", op.request("second"))
			b.run(b.consumer(op.operation), time.Minute, b.published(op.operation+"."+op.good+"."+op.id, 1))
			b.wantReopened(op.operation, op.id, "cancelled")
			if err := cancel(); err == nil || !strings.Contains(err.Error(), "has its outcome already") {
				t.Errorf("over an outcome: %v", err)
			}
			equal(t, "times carried out", op.served(b.oracle()), 1)
		})
	}
}

func TestADeferredRequestIsCancelledAndAStartedOneIsNot(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		b.fault(sandbox.Fault{Operation: "enroll", Kind: sandbox.Status, Status: 503, Match: "order-r1"})
		b.publish("mandate.enroll.requested", enrollment("r1"))
		b.run(b.mandates(), time.Minute, b.published("mandate.enroll.deferred.r1", 1))
		_, err := b.ann().Cancel(t.Context(), messages.Enroll, "r1", "withdrawn")
		must(t, err)
		b.box.ClearFaults("*")
		b.run(b.mandates(), time.Hour, func() bool { return b.queued() == 0 })
		if last := b.states("mandate.enroll", "r1"); last[len(last)-1] != "failed" || b.oracle().Enroll.Accepted != 0 {
			t.Errorf("%v, %d enrolled", last, b.oracle().Enroll.Accepted)
		}
		b.fault(sandbox.Fault{Operation: "enroll", Kind: sandbox.Delay, Delay: sandbox.Duration(20 * time.Second), Match: "order-r2"})
		b.publish("mandate.enroll.requested", enrollment("r2"))
		b.run(b.mandates(), time.Minute, func() bool {
			if b.count("mandate.enroll.started.r2") == 0 || b.count("mandate.enroll.succeeded.r2") > 0 {
				return b.count("mandate.enroll.succeeded.r2") > 0
			}
			_, err := b.ann().Cancel(t.Context(), messages.Enroll, "r2", "withdrawn")
			errorIf(t, err == nil || !strings.Contains(err.Error(), "a call is under way"), "a started one: %v", err)
			return false
		})
		b.wantOne("mandate.enroll.succeeded.r2")
	})
}
