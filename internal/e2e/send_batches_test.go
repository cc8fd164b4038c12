package e2e

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"errand/internal/sandbox"
	"errand/pkg/messages"
)

func TestManyRecipientsAreCutIntoBatches(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		m := message("m1", 2500)
		m["to"] = append(m["to"].([]string), "not an address", "m1-0@EXAMPLE.test", "also@bad@example.test", "Someone <m1-new@example.test>")
		b.publish("mail.send.requested", m)
		b.run(b.mails(), time.Minute, b.published("mail.send.accepted.m1", 1))
		e := b.wantOne("mail.send.accepted.m1")
		want := map[string]int{"recipients": 2501, "accepted": 2501, "batches": 3, "duplicates": 1, "invalid_count": 2}
		for field, n := range want {
			if number(e.Body[field]) != n {
				t.Errorf("%s: got %v, want %d", field, e.Body[field], n)
			}
		}
		for n, count := range []int{1000, 1000, 501} {
			a := b.wantOne(fmt.Sprintf("mail.batch.accepted.m1.%d", n+1))
			if number(a.Body["count"]) != count || number(a.Body["first"]) != n*1000 || number(a.Body["accepted"]) != count || number(a.Body["batch"]) != n+1 {
				t.Errorf("batch %d: %s", n+1, a.Raw)
			}
		}
		if o := b.oracle(); o.Mail.Recipients != 2501 || o.Mail.TwiceCount != 0 || o.Mail.Largest != 1000 {
			t.Errorf("oracle: %+v", o.Mail)
		}
	})
}

func TestExhaustedQuotaHoldsHalfWayAndGoesOn(t *testing.T) {
	full(t)
	inBubble(t, func(t *testing.T, b *bubble) {
		quota := func(n int64) {
			noError(t, b.box.Set(func(s *sandbox.Settings) { s.Quota = n }))
		}
		quota(3000)
		began := time.Now()
		b.publish("mail.send.requested", message("m1", 12_000))
		mails := b.mails()
		b.beside.Go(func() {
			time.Sleep(time.Hour)
			quota(1_000_000)
		})
		b.run(mails, 2*time.Hour, b.published("mail.send.accepted.m1", 1))
		e := b.wantOne("mail.send.accepted.m1")
		if number(e.Body["accepted"]) != 12_000 || number(e.Body["batches"]) != 12 {
			t.Errorf("body: %s", e.Raw)
		}
		if took := time.Since(began); took < time.Hour || took > time.Hour+time.Minute {
			t.Errorf("took %v", took)
		}
		o := b.oracle()
		if o.Mail.TwiceCount != 0 || o.Mail.Recipients != 12_000 {
			t.Errorf("oracle: %+v", o.Mail)
		}
		if most := int64(360 + 12 + 8); o.Calls["send"] > most {
			t.Errorf("%d calls, want at most %d", o.Calls["send"], most)
		}
		for _, d := range b.events("mail.send.deferred.m1")[:1] {
			if d.reason() != "held" {
				t.Errorf("deferred: %s", d.Raw)
			}
		}
	})
}

func TestRecipientsFromAnObject(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		list := strings.Join(message("m1", 3333)["to"].([]string), "\n") + "\n\nnot an address\r\nm1-7@example.test\n"
		b.publish("mail.send.requested", b.listedAs(message("m1", 0), list))
		m := b.listedAs(message("m2", 0), list)
		m["to_object"].(map[string]string)["digest"] = "SHA-256=" + base64.URLEncoding.EncodeToString(make([]byte, 32))
		b.publish("mail.send.requested", m)
		b.run(b.mails(), time.Minute, b.haveOutcomes("mail.send.*.*", 2))
		e := b.wantOne("mail.send.accepted.m1")
		if number(e.Body["accepted"]) != 3333 || number(e.Body["invalid_count"]) != 1 || number(e.Body["duplicates"]) != 1 || number(e.Body["batches"]) != 4 {
			t.Errorf("body: %s", e.Raw)
		}
		if f := b.wantOne("mail.send.failed.m2"); f.reason() != "invalid_request" || !strings.Contains(f.Raw, "to_object") {
			t.Errorf("body: %s", f.Raw)
		}
		if o := b.oracle(); o.Mail.TwiceCount != 0 || o.Mail.Recipients != 3333 {
			t.Errorf("oracle: %+v", o.Mail)
		}
	})
}

// Slow calls must not cut the reading of their list.
func TestALongListIsReadToItsEndHoweverSlowTheCalls(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		b.publish("mail.send.requested", b.listed("m1-with-a-rather-long-name", 20_000))
		b.latency(8 * time.Second)
		began := time.Now()
		b.run(b.mails(), time.Hour, b.published("mail.send.accepted.*", 1))
		b.wantOne("mail.send.accepted.*")
		if took := time.Since(began); took > 2*time.Minute { // five rounds of four calls, and the granularity of looking
			t.Errorf("took %v\n%s", took, b.logs)
		}
	})
}

// Whether a call of unknown fate was made is not forgotten while the service is busy: the
// message is given up as uncertain, not as unsent.
func TestWhatWasUnknownOnceStaysSoWhileTheServiceIsBusy(t *testing.T) {
	for _, n := range []int{5, 2500} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) {
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
		})
	}
}
