package e2e

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/sandbox"
	"errand/internal/sandbox/devkit/devtest"
	"errand/pkg/messages"
)

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
		errorIf(t, number(e.Body["accepted"]) != 12_000 || number(e.Body["batches"]) != 12, "body: %s", e.Raw)
		took := time.Since(began)
		errorIf(t, took < time.Hour || took > time.Hour+time.Minute, "took %v", took)
		o := b.oracle()
		errorIf(t, o.Mail.TwiceCount != 0 || o.Mail.Recipients != 12_000, "oracle: %+v", o.Mail)
		most := int64(360 + 12 + 8)
		errorIf(t, o.Calls["send"] > most, "%d calls, want at most %d", o.Calls["send"], most)
		for _, d := range b.events("mail.send.deferred.m1")[:1] {
			errorIf(t, d.reason() != "held", "deferred: %s", d.Raw)
		}
	})
}

// Blank lines and the ends of lines in a list's object are not addresses. Another digest is refused by bus.
func TestRecipientsFromAnObject(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		list := strings.Join(message("m1", 3333)["to"].([]string), "\n") + "\n\nnot an address\r\nm1-7@example.test\n"
		b.publish("mail.send.requested", b.listedAs(message("m1", 0), list))
		b.run(b.mails(), time.Minute, b.ended("mail.send", "m1"))
		e := b.wantOne("mail.send.accepted.m1")
		errorIf(t, number(e.Body["accepted"]) != 3333 || number(e.Body["invalid_count"]) != 1 || number(e.Body["duplicates"]) != 1 ||
			number(e.Body["batches"]) != 4, "body: %s", e.Raw)
		o := b.oracle()
		errorIf(t, o.Mail.TwiceCount != 0 || o.Mail.Recipients != 3333, "oracle: %+v", o.Mail)
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
					body := decode[messages.DeferredBody](t, e)
					errorIf(t, body.Reason != messages.ReasonBusy || !body.AfterUnknown, "%s: %s", e.Subject, e.Raw)
				}
				if e := b.wantOne("mail.send.uncertain.m1"); e.reason() != "no_answer" || e.Body["after_unknown"] != true {
					t.Errorf("body: %s", e.Raw)
				}
			})
		})
	}
}

// What was announced of a message under way is not what its recipients are cut into now,
// say by a newer program that reads addresses in another way: another batch would begin
// where one was accepted. Nothing more is sent, and it is not reported as if all was well.
func TestAMessageIsNotResumedWithOtherBatches(t *testing.T) {
	for _, c := range []struct {
		name                 string
		recipients, batches  int // as announced; it is 5 in 3 now
		list, afterADeferral bool
	}{
		{"more recipients, interrupted", 7, 4, false, false},
		{"more recipients, deferred", 7, 4, false, true},
		{"fewer recipients, deferred", 4, 2, false, true},
		{"as many batches, deferred", 6, 3, false, true},
		{"a list with more recipients, deferred", 7, 4, true, true},
	} {
		runInBubble(t, c.name, func(t *testing.T, b *bubble) {
			giveUp := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
			body := message("m1", 5, "give_up_at", giveUp.Format(time.RFC3339))
			if c.list {
				body = b.listed("m1", 5, "give_up_at", giveUp.Format(time.RFC3339))
			}
			data := encode(t, body)
			_, meta, err := messages.DecodeSend(data)
			must(t, err)
			began := messages.Time{Time: time.Now()}.String()
			b.publish("mail.send.started.m1", map[string]any{"request_id": "m1", "at": began, "attempt": 1, "deadline": began,
				"fingerprint": meta.Fingerprint, "recipients": c.recipients, "batches": c.batches, "batch_size": 2})
			b.publish("mail.batch.started.m1.1", map[string]any{"request_id": "m1", "at": began, "attempt": 1, "deadline": began, "batch": 1,
				"first": 0, "count": 2})
			b.publish("mail.batch.accepted.m1.1", map[string]any{"request_id": "m1", "at": began, "attempt": 1, "batch": 1, "first": 0, "count": 2,
				"accepted": 2})
			if c.afterADeferral {
				b.publish("mail.send.deferred.m1", map[string]any{"request_id": "m1", "at": began, "attempt": 1, "reason": "busy", "message": "",
					"http_status": 503, "not_before": began})
			}
			b.publish("mail.send.requested", data)
			b.run(b.mails(), 2*time.Hour, b.ended("mail.send", "m1"))
			equal(t, "calls", len(b.of("send")), 0)
			final := b.finalOf("mail.send", "m1")
			fatalIf(t, len(final) != 1 || final[0].at(t).After(giveUp.Add(2*time.Minute)),
				"want one final event by %v: %v\n%s", giveUp, final, b.logs)
			if state := strings.Split(final[0].Subject, ".")[2]; state != "uncertain" && state != "partial" {
				t.Errorf("want uncertain or partial: %s %s", final[0].Subject, final[0].Raw)
			}
		})
	}
}

// The example of docs/use/publish.md, with a NATS client in place of the tool `nats`.
func TestTheDocumentedListIsSentTo(t *testing.T) {
	document, err := os.ReadFile("../../docs/use/publish.md")
	must(t, err)
	_, section, _ := strings.Cut(string(document), "\n## Long lists: to_object\n")
	list := between(t, section, "cat > recipients.txt <<'END'\n", "END\n")
	request := between(t, section, "```json\n", "```")
	inBubble(t, func(t *testing.T, b *bubble) {
		bucket, err := b.js.CreateObjectStore(t.Context(), jetstream.ObjectStoreConfig{Bucket: "lists", TTL: 336 * time.Hour})
		must(t, err)
		info, err := bucket.PutString(t.Context(), "news-2026-01", list)
		fatalIf(t, err != nil || !strings.Contains(request, `"digest": "`+info.Digest+`"`),
			"the digest of the list is %s, %v; the document's request is %s", info.Digest, err, request)
		b.publish("mail.send.requested", []byte(request))
		b.run(b.mails(), time.Minute, b.published("mail.send.accepted.send-news-2026-01", 1))
		e := b.wantOne("mail.send.accepted.send-news-2026-01")
		errorIf(t, number(e.Body["accepted"]) != 2, "body: %s", e.Raw)
		o := b.oracle()
		errorIf(t, o.Mail.Recipients != 2, "oracle: %+v", o.Mail)
	})
}

// between is what stands between two texts.
func between(t *testing.T, text, before, after string) string {
	t.Helper()
	_, text, begins := strings.Cut(text, before)
	text, _, ends := strings.Cut(text, after)
	fatalIf(t, !begins || !ends, "nothing stands between %q and %q", before, after)
	return text
}

// No call is made without a record of it, and no record shows an address.
func TestEachCallLeavesARecordBeforeItIsMade(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		// A second call that begins too late for the first one's deadline.
		b.fault(sandbox.Fault{Operation: "send", Kind: sandbox.Status, Status: 503, Times: 1, Match: "m2-0@",
			Headers: map[string]string{"Retry-After": "8"}})
		var calls atomic.Int64
		b.script = func(x exchange) reply {
			if n := calls.Add(1); x.write() {
				all := b.events("mail.log.sent.>")
				if len(all) != int(n) {
					t.Errorf("call %d is made with %d records", n, len(all))
				} else if last := decode[messages.SentBody](t, all[n-1]); last.Begin.After(time.Now()) ||
					last.Until.Before(time.Now().Add(30*time.Second)) {
					t.Errorf("call %d is made at %v: %s", n, time.Now(), all[n-1].Raw)
				}
			}
			return reply{}
		}
		for _, m := range []map[string]any{message("m1", 2500, "from", "The Shop <shop@Example.test>"), message("m2", 3)} {
			before := calls.Load()
			b.publish("mail.send.requested", m)
			id := m["request_id"].(string)
			mails := b.mails()
			mails.BatchParallel = 1
			b.run(mails, 2*time.Minute, b.published("mail.send.accepted."+id, 1))
			b.wantRecords(m, int(calls.Load()-before))
		}
		errorIf(t, calls.Load() != 5, "%d calls, want 5", calls.Load())
	})
}

func secretOf(t *testing.T, js jetstream.JetStream) *messages.RecipientSecret {
	secret, err := bus.RecipientSecret(t.Context(), js.Conn())
	must(t, err)
	return secret
}

// wantRecords holds the records of a message against it.
func (b *bubble) wantRecords(m map[string]any, want int) {
	id, to := m["request_id"].(string), m["to"].([]string)
	records := b.events(fmt.Sprintf("mail.log.sent.%s.>", id))
	fatalIf(b.t, len(records) != want, "%s: %d records, want %d", id, len(records), want)
	seen, secret := map[int]bool{}, secretOf(b.t, b.js)
	for _, e := range records {
		errorIf(b.t, strings.Contains(e.Raw, "@") || strings.Contains(e.Raw, "xample") || strings.Contains(fmt.Sprint(e.Header), "@"),
			"a record shows an address: %s", e.Raw)
		r := decode[messages.SentBody](b.t, e)
		most := 16*r.Count + 300
		errorIf(b.t, len(e.Raw) > most, "%d bytes, want at most %d", len(e.Raw), most)
		from, keys := r.Parties()
		sender, _ := m["from"].(string)
		errorIf(b.t, e.Subject != fmt.Sprintf("mail.log.sent.%s.%d", id, r.Batch) || r.First != (r.Batch-1)*1000 ||
			r.RequestID != id || r.Until.Sub(r.Begin.Time) > 35*time.Second, "%s: %s", e.Subject, e.Raw)
		if seen[r.Batch] { // a repeated call: the first record has them
			errorIf(b.t, len(keys) != 0, "%s has %d keys once more", e.Subject, len(keys))
			continue
		}
		seen[r.Batch] = true
		fatalIf(b.t, len(keys) != r.Count || from != secret.KeyOf(sender), "batch %d: %d of %d", r.Batch, len(keys), r.Count)
		for i, k := range keys {
			fatalIf(b.t, k != secret.KeyOf(to[r.First+i]), "batch %d: another key for recipient %d", r.Batch, r.First+i)
		}
	}
	errorIf(b.t, len(seen) != (len(to)+999)/1000, "records of the batches %v", seen)
}

// Without a place for the record there is no call; it is made when there is one again.
func TestNoMessageIsSentWhileItsRecordCannotBeStored(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		ctx, calls := context.WithoutCancel(t.Context()), int64(-1)
		b.beside.Go(func() {
			time.Sleep(5 * time.Second)
			noError(t, b.js.DeleteStream(ctx, bus.MailDeliveries))
			b.publish("mail.send.requested", message("m1", 3))
			time.Sleep(10 * time.Minute)
			calls = b.calls("send")
			noError(t, devtest.Provision(ctx, b.js.Conn()))
		})
		b.run(b.mails(), 12*time.Minute, b.published("mail.send.accepted.m1", 1))
		b.beside.Wait()
		b.wantOne("mail.send.accepted.m1")
		o := b.oracle()
		errorIf(t, calls != 0 || o.Calls["send"] != 1, "%d calls without a record, %d in all", calls, o.Calls["send"])
	})
}
