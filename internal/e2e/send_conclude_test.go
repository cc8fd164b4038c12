package e2e

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"errand/internal/sandbox"
	"errand/pkg/messages"
)

// awaits wants the request to be deferred, with nothing of its last call known.
func (b *bubble) awaits(id string, reason messages.Reason) {
	b.t.Helper()
	all := b.events("mail.send.*." + id)
	e := all[len(all)-1]
	body := decode[messages.DeferredBody](b.t, e)
	if e.state() != messages.Deferred || body.Reason != reason || !body.AfterUnknown {
		b.t.Fatalf("%s: %s\n%s", e.Subject, e.Raw, b.logs)
	}
}

func TestAMessageOfUnknownFateWaitsForTheSendingLog(t *testing.T) {
	full(t)
	for _, c := range []struct {
		outcome messages.Conclusion
		kind    string
		state   messages.State
		calls   int64 // of the batch
		served  int   // of its recipients
	}{
		{messages.WasAccepted, sandbox.AcceptCut, messages.Accepted, 1, 1},
		{messages.WasNotSent, sandbox.Cut, messages.Accepted, 2, 1},
		{messages.Unclear, sandbox.AcceptCut, messages.Uncertain, 1, 1},
		{messages.Unclear, sandbox.Cut, messages.Uncertain, 1, 0},
	} {
		for _, n := range []int{5, 2500} {
			runInBubble(t, fmt.Sprint(c.outcome, " ", c.kind, " ", n), func(t *testing.T, b *bubble) {
				number, size, others, batch := 1, n, 0, "mail.send.started.m1"
				if n > 1000 { // the second of three
					number, size, others, batch = 2, 1000, 2, "mail.batch.started.m1.2"
				}
				b.fault(sandbox.Fault{Operation: "send", Kind: c.kind, Times: 1, Match: fmt.Sprintf("m1-%d@", (number-1)*1000)})
				b.publish("mail.send.requested", message("m1", n, "on_unknown", "conclude"))
				mails := b.mails()
				mails.BatchParallel = 1 // the third begins when the second is cut
				b.run(mails, time.Minute, b.published("mail.send.deferred.m1", 1))
				if got := len(b.events("mail.batch.accepted.m1.*")); got != others {
					t.Errorf("%d other batches accepted, want %d", got, others)
				}
				end := b.endOfCall(batch)
				b.conclude("m1", number, messages.WasAccepted, end.Add(-time.Millisecond)) // an earlier call was
				b.run(b.mails(), 2*time.Hour, nil)
				b.awaits("m1", messages.ReasonNoAnswer)
				if n > 1000 {
					b.wantOne("mail.batch.deferred.m1.2")
				}

				b.conclude("m1", number, c.outcome, end)
				b.run(b.mails(), 20*time.Minute, b.published(fmt.Sprintf("mail.send.%s.m1", c.state), 1))
				body := decode[messages.SendOutcome](t, b.wantOne(fmt.Sprintf("mail.send.%s.m1", c.state)))
				accepted, letters := n, 0
				if c.state == messages.Uncertain {
					accepted, letters = n-size, 1
				}
				if body.Accepted != accepted || !body.AfterUnknown || letters == 1 && body.Reason != messages.ReasonNoAnswer {
					t.Errorf("body: %+v", body)
				}
				if got := len(b.events("dead.>")); got != letters {
					t.Errorf("%d dead letters, want %d", got, letters)
				}
				o := b.box.Oracle(sandbox.Query{})
				if want := int64(n - size + c.served*size); o.Mail.TwiceCount != 0 || o.Mail.Recipients != want || o.Calls["send"] != int64(others)+c.calls {
					t.Errorf("%d calls served %d, %d of them twice", o.Calls["send"], o.Mail.Recipients, o.Mail.TwiceCount)
				}
			})
		}
	}
}

// A second call of unknown fate is not taken for what was said of the first.
func TestEachCallIsConcludedByItself(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		b.fault(sandbox.Fault{Operation: "send", Kind: sandbox.Cut, Times: 1})
		b.fault(sandbox.Fault{Operation: "send", Kind: sandbox.Status, Status: 503, Times: 7})
		b.fault(sandbox.Fault{Operation: "send", Kind: sandbox.AcceptCut, Times: 1})
		b.publish("mail.send.requested", message("m1", 5, "on_unknown", "conclude"))
		b.run(b.mails(), time.Minute, b.published("mail.send.deferred.m1", 1))
		b.conclude("m1", 1, messages.WasNotSent, b.endOfCall("mail.send.started.m1"))
		b.run(b.mails(), 3*time.Hour, nil) // busy for a while, which is known, and then cut
		b.awaits("m1", messages.ReasonNoAnswer)
		if o := b.box.Oracle(sandbox.Query{}); o.Calls["send"] != 9 {
			t.Errorf("%d calls, want 9", o.Calls["send"])
		}
		b.conclude("m1", 1, messages.WasAccepted, b.endOfCall("mail.send.started.m1"))
		b.run(b.mails(), 20*time.Minute, b.published("mail.send.accepted.m1", 1))
		b.wantOne("mail.send.accepted.m1")
		if o := b.box.Oracle(sandbox.Query{}); o.Calls["send"] != 9 || o.Mail.Recipients != 5 {
			t.Errorf("%d calls served %d", o.Calls["send"], o.Mail.Recipients)
		}
	})
}

// A log that never speaks is asked less and less often, and given up in the end.
func TestASilentLogEndsUncertainAtGiveUpAt(t *testing.T) {
	full(t)
	for _, n := range []int{5, 2500} {
		runInBubble(t, fmt.Sprint(n), func(t *testing.T, b *bubble) {
			b.fault(sandbox.Fault{Operation: "send", Kind: sandbox.Cut, Times: 1})
			const patience = 3 * time.Hour
			began := time.Now()
			b.publish("mail.send.requested", message("m1", n, "on_unknown", "conclude", "give_up_at", began.Add(patience).UTC().Format(time.RFC3339)))
			b.run(b.mails(), patience+time.Hour, b.published("mail.send.uncertain.m1", 1))
			e := decode[messages.SendOutcome](t, b.wantOne("mail.send.uncertain.m1"))
			if took := e.At.Sub(began); took < patience || took > patience+time.Minute || e.Reason != messages.ReasonNoAnswer {
				t.Errorf("after %v: %+v", took, e)
			}
			deferred := b.events("mail.send.deferred.m1")
			want := 10 * time.Second
			for _, d := range deferred[:len(deferred)-1] { // the last is cut to give_up_at
				body := decode[messages.DeferredBody](t, d)
				if wait := body.NotBefore.Sub(body.At.Time).Round(time.Second); wait != want {
					t.Fatalf("waits %v, want %v: %s", wait, want, d.Raw)
				}
				want = min(2*want, 15*time.Minute)
			}
			if len(deferred) > 20 {
				t.Errorf("deferred %d times", len(deferred))
			}
			b.wantOne("dead.mail.send.requested")
		})
	}
}

// Given up, what is known not to have been sent is not uncertain.
func TestWhatWasNotSentFailsAtGiveUpAt(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		giveUp := time.Now().Add(time.Hour).UTC()
		b.fault(sandbox.Fault{Operation: "send", Kind: sandbox.Cut, Times: 1})
		b.publish("mail.send.requested", message("m1", 5, "on_unknown", "conclude", "give_up_at", giveUp.Format(time.RFC3339)))
		b.run(b.mails(), 59*time.Minute, nil)
		b.conclude("m1", 1, messages.WasNotSent, b.endOfCall("mail.send.started.m1"))
		time.Sleep(2 * time.Minute)
		b.run(b.mails(), time.Minute, b.published("mail.send.failed.m1", 1))
		if e := b.wantOne("mail.send.failed.m1"); e.reason() != "unavailable" {
			t.Errorf("body: %s", e.Raw)
		}
		if o := b.box.Oracle(sandbox.Query{}); o.Calls["send"] != 1 {
			t.Errorf("%d calls", o.Calls["send"])
		}
	})
}

// A worker died between the announcement of a call and its outcome.
func TestAnInterruptedMessageWaitsForTheSendingLog(t *testing.T) {
	full(t)
	for _, n := range []int{5, 2500} {
		for outcome, calls := range map[messages.Conclusion]int64{messages.WasAccepted: 0, messages.WasNotSent: 1} {
			runInBubble(t, fmt.Sprint(outcome, " ", n), func(t *testing.T, b *bubble) {
				data, _ := json.Marshal(message("m1", n, "on_unknown", "conclude"))
				_, meta, err := messages.DecodeSend(data)
				must(t, err)
				head, deadline := messages.Common{RequestID: "m1", At: messages.Time{Time: time.Now()}, Attempt: 1}, messages.Time{Time: time.Now().Add(35 * time.Second)}
				started := &messages.SendStarted{Common: head, Deadline: deadline, Fingerprint: meta.Fingerprint, Recipients: n, Batches: (n + 999) / 1000, BatchSize: 1000}
				b.publish("mail.send.started.m1", started)
				number, others, batch := 1, int64(0), "mail.send.started.m1"
				if n > 1000 {
					number, others, batch = 2, 2, "mail.batch.started.m1.2"
					b.publish(batch, &messages.BatchBody{Common: head, Batch: 2, First: 1000, Count: 1000, Deadline: &deadline})
				}
				b.publish("mail.send.requested", data)
				b.run(b.mails(), time.Hour, nil)
				b.awaits("m1", messages.ReasonInterrupted)
				b.conclude("m1", number, outcome, b.endOfCall(batch))
				b.run(b.mails(), time.Hour, b.published("mail.send.accepted.m1", 1))
				body := decode[messages.SendOutcome](t, b.wantOne("mail.send.accepted.m1"))
				if o := b.box.Oracle(sandbox.Query{}); body.Accepted != n || !body.AfterUnknown || o.Calls["send"] != others+calls {
					t.Errorf("%d calls, %+v", o.Calls["send"], body)
				}
			})
		}
	}
}

// A worker died before it left the record of the call that it had announced: whoever
// takes its request over leaves one, so that the log can show that nothing was sent.
func TestACallWithoutARecordIsConcludedToo(t *testing.T) {
	for _, onUnknown := range []string{"conclude", "report"} {
		for _, n := range []int{5, 2500} {
			runInBubble(t, fmt.Sprint(onUnknown, " ", n), func(t *testing.T, b *bubble) {
				b.watchLog()
				data, _ := json.Marshal(message("m1", n, "on_unknown", onUnknown))
				_, meta, err := messages.DecodeSend(data)
				must(t, err)
				began, deadline := time.Now(), messages.Time{Time: time.Now().Add(35 * time.Second)}
				head := messages.Common{RequestID: "m1", At: messages.Time{Time: began}, Attempt: 1}
				b.publish("mail.send.started.m1", &messages.SendStarted{Common: head, Deadline: deadline, Fingerprint: meta.Fingerprint, Recipients: n, Batches: (n + 999) / 1000, BatchSize: 1000})
				number, size, others := 1, n, int64(0)
				if n > 1000 {
					number, size, others = 2, 1000, 2
					b.publish("mail.batch.started.m1.2", &messages.BatchBody{Common: head, Batch: 2, First: 1000, Count: 1000, Deadline: &deadline})
				}
				b.publish("mail.send.requested", data)
				ends := map[string]string{"conclude": "mail.send.deferred.m1", "report": "mail.send.uncertain.m1"}[onUnknown]
				b.run(b.mails(), 5*time.Minute, b.published(ends, 1))
				r := decode[messages.SentBody](t, b.wantOne(fmt.Sprint("mail.log.sent.m1.", number)))
				if !r.Begin.Equal(head.At.Time) || !r.Until.Equal(deadline.Time) || r.First != (number-1)*1000 || r.Count != size || len(messages.Keys(r.Keys)) != size {
					t.Errorf("record: %+v", r)
				}
				time.Sleep(2 * time.Hour)
				calls := others + 1
				if onUnknown == "conclude" {
					b.pollOn(5*time.Minute, b.published("mail.log.concluded.>", 1))
					b.run(b.mails(), time.Minute, b.published("mail.send.accepted.m1", 1))
					b.wantOne("mail.send.accepted.m1")
				} else {
					b.pollOn(5*time.Minute, b.published("mail.send.resolved.m1", 1))
					calls = others
					want := map[int64]messages.State{0: messages.Failed, 2: messages.Partial}[others]
					if e := decode[messages.SendResolved](t, b.wantOne("mail.send.resolved.m1")); e.Outcome != want {
						t.Errorf("resolved: %+v, want %s", e, want)
					}
				}
				if o := b.box.Oracle(sandbox.Query{}); o.Calls["send"] != calls || o.Mail.TwiceCount != 0 {
					t.Errorf("%d calls, want %d; %d served twice", o.Calls["send"], calls, o.Mail.TwiceCount)
				}
			})
		}
	}
}

// Whether a call of unknown fate was made is not forgotten while the service is busy: the
// message is given up as uncertain, not as unsent.
func TestWhatWasUnknownOnceStaysSoWhileTheServiceIsBusy(t *testing.T) {
	for _, n := range []int{5, 2500} {
		runInBubble(t, fmt.Sprint(n), func(t *testing.T, b *bubble) {
			match, subject := "m1-0@", "mail.send.deferred.m1"
			if n > 1000 {
				match, subject = "m1-1000@", "mail.batch.deferred.m1.2"
			}
			b.fault(sandbox.Fault{Operation: "send", Kind: sandbox.AcceptCut, Times: 1, Match: match})
			b.fault(sandbox.Fault{Operation: "send", Kind: sandbox.Status, Status: 503, Match: match})
			giveUp := time.Now().Add(10 * time.Minute).UTC()
			b.publish("mail.send.requested", message("m1", n, "on_unknown", "resend", "give_up_at", giveUp.Format(time.RFC3339)))
			b.run(b.mails(), 20*time.Minute, b.published("mail.send.uncertain.m1", 1))
			for _, e := range b.events(subject) {
				if body := decode[messages.DeferredBody](t, e); body.Reason != messages.ReasonBusy || !body.AfterUnknown {
					t.Errorf("%s: %s", e.Subject, e.Raw)
				}
			}
			if e := b.wantOne("mail.send.uncertain.m1"); e.reason() != "no_answer" || e.Body["after_unknown"] != true {
				t.Errorf("body: %s", e.Raw)
			}
		})
	}
}

// A call that the service does not authorize is of known fate: it is made again when it does,
// and nothing is asked of the log.
func TestAnUnauthorizedCallDoesNotWaitForTheLog(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		b.fault(sandbox.Fault{Operation: "send", Kind: sandbox.Cut, Times: 1})
		b.fault(sandbox.Fault{Operation: "send", Kind: sandbox.Status, Status: 402, Times: 1})
		b.publish("mail.send.requested", message("m1", 5, "on_unknown", "conclude"))
		b.run(b.mails(), time.Minute, b.published("mail.send.deferred.m1", 1))
		b.conclude("m1", 1, messages.WasNotSent, b.endOfCall("mail.send.started.m1"))
		b.run(b.mails(), time.Hour, b.published("mail.send.accepted.m1", 1))
		b.wantOne("mail.send.accepted.m1")
		if o := b.box.Oracle(sandbox.Query{}); o.Calls["send"] != 3 || o.Mail.TwiceCount != 0 {
			t.Errorf("%d calls", o.Calls["send"])
		}
	})
}
