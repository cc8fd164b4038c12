package e2e

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/sandbox"
	"errand/internal/wire/mailkey"
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
			_, meta, err := messages.Decode[messages.SendRequest](data)
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
		_, err := b.js.CreateObjectStore(t.Context(), jetstream.ObjectStoreConfig{Bucket: "lists", TTL: 336 * time.Hour})
		must(t, err)
		sum := sha256.Sum256([]byte(list))
		digest := "SHA-256=" + base64.URLEncoding.EncodeToString(sum[:])
		fatalIf(t, !strings.Contains(request, `"digest": "`+digest+`"`), "the digest of the list is %s; the document's request is %s",
			digest, request)
		// Not by Put: it can leave a goroutine that waits for ever (nats.go 1.55, resetPendingAcksOnReconnect), which no bubble bears.
		info, err := json.Marshal(jetstream.ObjectInfo{ObjectMeta: jetstream.ObjectMeta{Name: "news-2026-01"}, Bucket: "lists", NUID: "n1",
			Size: uint64(len(list)), Chunks: 1, Digest: digest})
		must(t, err)
		b.publish("$O.lists.C.n1", []byte(list))
		b.publish("$O.lists.M."+base64.URLEncoding.EncodeToString([]byte("news-2026-01")), info)
		tonight := messages.Time{Time: time.Now().Add(time.Hour)}.String()
		b.publish("mail.send.requested", []byte(strings.Replace(request, "2026-01-31T21:00:00+08:00", tonight, 1)))
		b.run(b.mails(), 2*time.Hour, b.published("mail.send.accepted.send-news-2026-01", 1))
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

func secretOf(t *testing.T, js jetstream.JetStream) *mailkey.Secret {
	secret, err := bus.RecipientSecret(t.Context(), js.Conn())
	must(t, err)
	return secret
}
