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
		errorIf(t, calls.Load() != 5, "%d calls, want 5", calls.Load())
	})
}

// wantRecords holds the records of a message against it.
func (b *bubble) wantRecords(m map[string]any, want int) {
	id, to := m["request_id"].(string), m["to"].([]string)
	records := b.events(fmt.Sprintf("mail.log.sent.%s.>", id))
	fatalIf(b.t, len(records) != want, "%s: %d records, want %d", id, len(records), want)
	seen := map[int]bool{}
	for _, e := range records {
		errorIf(b.t, strings.Contains(e.Raw, "@") || strings.Contains(e.Raw, "xample") || strings.Contains(fmt.Sprint(e.Header), "@"),
			"a record shows an address: %s", e.Raw)
		r := decode[messages.SentBody](b.t, e)
		most := 16*r.Count + 300
		errorIf(b.t, len(e.Raw) > most, "%d bytes, want at most %d", len(e.Raw), most)
		from := messages.Key(0)
		if m["from"] != nil {
			from = messages.KeyOf("shop@example.test")
		}
		errorIf(b.t, e.Subject != fmt.Sprintf("mail.log.sent.%s.%d", id, r.Batch) || r.First != (r.Batch-1)*1000 || r.From != from ||
			r.RequestID != id || r.Until.Sub(r.Begin.Time) > 35*time.Second, "%s: %s", e.Subject, e.Raw)
		keys := messages.Keys(r.Keys)
		if seen[r.Batch] { // a repeated call: the first record has them
			errorIf(b.t, len(keys) != 0, "%s has %d keys once more", e.Subject, len(keys))
			continue
		}
		seen[r.Batch] = true
		fatalIf(b.t, len(keys) != r.Count, "batch %d: %d keys of %d recipients", r.Batch, len(keys), r.Count)
		for i, k := range keys {
			fatalIf(b.t, k != messages.KeyOf(to[r.First+i]), "batch %d: another key for recipient %d", r.Batch, r.First+i)
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
