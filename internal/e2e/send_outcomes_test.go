package e2e

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/sandbox"
)

func TestMessageToThreeIsOneCall(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		b.publish("mail.send.requested", message("m1", 3))
		b.run(b.mails(), time.Minute, b.published("mail.send.accepted.m1", 1))
		e := b.wantOne("mail.send.accepted.m1")
		if number(e.Body["recipients"]) != 3 || number(e.Body["accepted"]) != 3 || number(e.Body["batches"]) != 1 {
			t.Errorf("body: %s", e.Raw)
		}
		if got := b.events("mail.>"); len(got) != 2 {
			t.Errorf("%d events, want started and accepted only", len(got))
		}
		if o := b.box.Oracle(sandbox.Query{}); o.Mail.Recipients != 3 || o.Calls["send"] != 1 {
			t.Errorf("oracle: %+v", o)
		}
	})
}

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
		if o := b.box.Oracle(sandbox.Query{}); o.Mail.Recipients != 2501 || o.Mail.TwiceCount != 0 || o.Mail.Largest != 1000 {
			t.Errorf("oracle: %+v", o.Mail)
		}
	})
}

func TestUnknownFateOfABatch(t *testing.T) {
	for _, c := range []struct {
		name, kind, onUnknown, state string
		n, twice, unsettled          int
	}{
		{"one batch, report", sandbox.AcceptCut, "report", "uncertain", 5, 0, 1},
		{"one batch, resend after it was done", sandbox.AcceptCut, "resend", "accepted", 5, 5, 0},
		{"one batch, resend after it was not", sandbox.Cut, "resend", "accepted", 5, 0, 0},
		{"three batches, report", sandbox.AcceptCut, "report", "uncertain", 2500, 0, 1},
		{"three batches, resend", sandbox.Cut, "resend", "accepted", 2500, 0, 0},
	} {
		runInBubble(t, c.name, func(t *testing.T, b *bubble) {
			b.fault(sandbox.Fault{Operation: "send", Kind: c.kind, Times: 1})
			b.publish("mail.send.requested", message("m1", c.n, "on_unknown", c.onUnknown))
			b.run(b.mails(), 10*time.Minute, b.published("mail.send."+c.state+".m1", 1))
			e := b.wantOne("mail.send." + c.state + ".m1")
			unsettled, _ := e.Body["unsettled"].([]any)
			if len(unsettled) != c.unsettled {
				t.Fatalf("unsettled: %s", e.Raw)
			}
			if c.unsettled > 0 {
				u := unsettled[0].(map[string]any)
				if u["state"] != "uncertain" || u["reason"] != "no_answer" {
					t.Errorf("unsettled: %v", u)
				}
				b.wantOne("dead.mail.send.requested")
			}
			if got := b.box.Oracle(sandbox.Query{}).Mail.TwiceCount; got != c.twice {
				t.Errorf("%d served twice, want %d", got, c.twice)
			}
		})
	}
}

func TestRefusedBatchDoesNotStopTheOthers(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		b.fault(sandbox.Fault{Operation: "send", Kind: sandbox.Status, Status: 422, Times: 1, Body: []byte(`{"error":true,"status_code":422,"message":"no","data":{}}`)})
		b.publish("mail.send.requested", message("m1", 2500))
		b.run(b.mails(), time.Minute, b.published("mail.send.partial.m1", 1))
		e := b.wantOne("mail.send.partial.m1")
		u := e.Body["unsettled"].([]any)[0].(map[string]any)
		if u["state"] != "refused" || u["reason"] != "refused" || number(u["http_status"]) != 422 || number(e.Body["accepted"])+number(u["count"]) != 2500 {
			t.Errorf("body: %s", e.Raw)
		}
		if dead := b.events("dead.>"); len(dead) != 1 {
			t.Errorf("%d dead letters, want one to send the refused batch by", len(dead))
		}
	})
}

func TestAllBatchesRefusedFail(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		b.fault(sandbox.Fault{Operation: "send", Kind: sandbox.Status, Status: 422, Body: []byte(`{"error":true,"status_code":422,"message":"no","data":{}}`)})
		b.publish("mail.send.requested", message("m1", 2500))
		b.publish("mail.send.requested", message("m2", 2))
		b.run(b.mails(), time.Minute, b.published("mail.send.failed.*", 2))
		for _, id := range []string{"m1", "m2"} {
			e := b.wantOne("mail.send.failed." + id)
			if e.reason() != "refused" || number(e.Body["http_status"]) != 422 || number(e.Body["accepted"]) != 0 {
				t.Errorf("body: %s", e.Raw)
			}
		}
	})
}

func TestShortCountIsPartial(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		b.fault(sandbox.Fault{Operation: "send", Kind: sandbox.Short, Times: 1})
		b.publish("mail.send.requested", message("m1", 10))
		b.run(b.mails(), time.Minute, b.published("mail.send.partial.m1", 1))
		e := b.wantOne("mail.send.partial.m1")
		u := e.Body["unsettled"].([]any)[0].(map[string]any)
		if number(e.Body["accepted"]) != 5 || u["reason"] != "short_count" || u["state"] != "accepted" {
			t.Errorf("body: %s", e.Raw)
		}
	})
}

func TestNoValidRecipientFailsWithoutACall(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		m := message("m1", 0)
		m["to"] = "nobody, no one"
		b.publish("mail.send.requested", m)
		b.run(b.mails(), time.Minute, b.published("mail.send.failed.m1", 1))
		e := b.wantOne("mail.send.failed.m1")
		if e.reason() != "invalid_request" || number(e.Body["invalid_count"]) != 2 || !strings.Contains(e.Raw, `"to"`) {
			t.Errorf("body: %s", e.Raw)
		}
		if o := b.box.Oracle(sandbox.Query{}); o.Calls["send"] != 0 {
			t.Errorf("%d calls", o.Calls["send"])
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
		o := b.box.Oracle(sandbox.Query{})
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
		bucket, err := b.js.CreateObjectStore(t.Context(), jetstream.ObjectStoreConfig{Bucket: "lists"})
		must(t, err)
		var list strings.Builder
		for i := range 3333 {
			fmt.Fprintf(&list, "reader-%d@example.test\n", i)
		}
		list.WriteString("\nnot an address\r\nreader-7@example.test\n")
		if _, err := bucket.PutString(t.Context(), "all", list.String()); err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256([]byte(list.String()))
		digest := "SHA-256=" + base64.URLEncoding.EncodeToString(sum[:])
		m := message("m1", 0)
		delete(m, "to")
		m["to_object"] = map[string]string{"bucket": "lists", "name": "all", "digest": digest}
		b.publish("mail.send.requested", m)
		m["request_id"] = "m2"
		m["to_object"] = map[string]string{"bucket": "lists", "name": "all", "digest": "SHA-256=" + base64.URLEncoding.EncodeToString(make([]byte, 32))}
		b.publish("mail.send.requested", m)
		b.run(b.mails(), time.Minute, func() bool {
			return b.published("mail.send.accepted.m1", 1)() && b.published("mail.send.failed.m2", 1)()
		})
		e := b.wantOne("mail.send.accepted.m1")
		if number(e.Body["accepted"]) != 3333 || number(e.Body["invalid_count"]) != 1 || number(e.Body["duplicates"]) != 1 || number(e.Body["batches"]) != 4 {
			t.Errorf("body: %s", e.Raw)
		}
		if f := b.wantOne("mail.send.failed.m2"); f.reason() != "invalid_request" || !strings.Contains(f.Raw, "to_object") {
			t.Errorf("body: %s", f.Raw)
		}
		if o := b.box.Oracle(sandbox.Query{}); o.Mail.TwiceCount != 0 || o.Mail.Recipients != 3333 {
			t.Errorf("oracle: %+v", o.Mail)
		}
	})
}

// Slow calls must not cut the reading of their list.
func TestALongListIsReadToItsEndHoweverSlowTheCalls(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		bucket, err := b.js.CreateObjectStore(t.Context(), jetstream.ObjectStoreConfig{Bucket: "lists"})
		must(t, err)
		var list strings.Builder
		for i := range 20_000 {
			fmt.Fprintf(&list, "reader-with-a-rather-long-name-%d@example.test\n", i)
		}
		if _, err := bucket.PutString(t.Context(), "all", list.String()); err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256([]byte(list.String()))
		m := message("m1", 0)
		delete(m, "to")
		m["to_object"] = map[string]string{"bucket": "lists", "name": "all", "digest": "SHA-256=" + base64.URLEncoding.EncodeToString(sum[:])}
		must(t, b.box.Set(func(s *sandbox.Settings) { s.Latency = sandbox.Duration(8 * time.Second) }))
		b.publish("mail.send.requested", m)
		began := time.Now()
		b.run(b.mails(), time.Hour, b.published("mail.send.accepted.m1", 1))
		b.wantOne("mail.send.accepted.m1")
		if took := time.Since(began); took > 2*time.Minute { // five rounds of four calls, and the granularity of looking
			t.Errorf("took %v\n%s", took, b.logs)
		}
	})
}
