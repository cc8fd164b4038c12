package e2e

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"errand/internal/bus"
	"errand/internal/sandbox"
	"errand/internal/sandbox/devkit/devtest"
	"errand/pkg/messages"
)

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
		if calls.Load() != 5 {
			t.Errorf("%d calls, want 5", calls.Load())
		}
	})
}

// wantRecords holds the records of a message against it.
func (b *bubble) wantRecords(m map[string]any, want int) {
	b.t.Helper()
	id, to := m["request_id"].(string), m["to"].([]string)
	records := b.events(fmt.Sprintf("mail.log.sent.%s.>", id))
	if len(records) != want {
		b.t.Fatalf("%s: %d records, want %d", id, len(records), want)
	}
	seen := map[int]bool{}
	for _, e := range records {
		if strings.Contains(e.Raw, "@") || strings.Contains(e.Raw, "xample") || strings.Contains(fmt.Sprint(e.Header), "@") {
			b.t.Errorf("a record shows an address: %s", e.Raw)
		}
		r := decode[messages.SentBody](b.t, e)
		if most := 16*r.Count + 300; len(e.Raw) > most {
			b.t.Errorf("%d bytes, want at most %d", len(e.Raw), most)
		}
		from := messages.Key(0)
		if m["from"] != nil {
			from = messages.KeyOf("shop@example.test")
		}
		if e.Subject != fmt.Sprintf("mail.log.sent.%s.%d", id, r.Batch) || r.First != (r.Batch-1)*1000 || r.From != from ||
			r.RequestID != id || r.Until.Sub(r.Begin.Time) > 35*time.Second {
			b.t.Errorf("%s: %s", e.Subject, e.Raw)
		}
		keys := messages.Keys(r.Keys)
		if seen[r.Batch] { // a repeated call: the first record has them
			if len(keys) != 0 {
				b.t.Errorf("%s has %d keys once more", e.Subject, len(keys))
			}
			continue
		}
		seen[r.Batch] = true
		if len(keys) != r.Count {
			b.t.Fatalf("batch %d: %d keys of %d recipients", r.Batch, len(keys), r.Count)
		}
		for i, k := range keys {
			if k != messages.KeyOf(to[r.First+i]) {
				b.t.Fatalf("batch %d: another key for recipient %d", r.Batch, r.First+i)
			}
		}
	}
	if len(seen) != (len(to)+999)/1000 {
		b.t.Errorf("records of the batches %v", seen)
	}
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
		if o := b.oracle(); calls != 0 || o.Calls["send"] != 1 {
			t.Errorf("%d calls without a record, %d in all", calls, o.Calls["send"])
		}
	})
}
