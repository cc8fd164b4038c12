package e2e

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"errand/pkg/messages"
)

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
			data, err := json.Marshal(body)
			must(t, err)
			_, meta, err := messages.DecodeSend(data)
			must(t, err)
			began := messages.Time{Time: time.Now()}.String()
			b.publish("mail.send.started.m1", map[string]any{"request_id": "m1", "at": began, "attempt": 1, "deadline": began,
				"fingerprint": meta.Fingerprint, "recipients": c.recipients, "batches": c.batches, "batch_size": 2})
			b.publish("mail.batch.started.m1.1", map[string]any{"request_id": "m1", "at": began, "attempt": 1, "deadline": began, "batch": 1, "first": 0, "count": 2})
			b.publish("mail.batch.accepted.m1.1", map[string]any{"request_id": "m1", "at": began, "attempt": 1, "batch": 1, "first": 0, "count": 2, "accepted": 2})
			if c.afterADeferral {
				b.publish("mail.send.deferred.m1", map[string]any{"request_id": "m1", "at": began, "attempt": 1, "reason": "busy", "message": "", "http_status": 503, "not_before": began})
			}
			b.publish("mail.send.requested", data)
			b.run(b.mails(), 2*time.Hour, b.ended("mail.send", "m1"))
			if n := len(b.of("send")); n != 0 {
				t.Errorf("%d calls, want none", n)
			}
			final := b.finalOf("mail.send", "m1")
			if len(final) != 1 || stamp(t, final[0]).After(giveUp.Add(2*time.Minute)) {
				t.Fatalf("want one final event by %v: %v\n%s", giveUp, final, b.logs)
			}
			if state := strings.Split(final[0].Subject, ".")[2]; state != "uncertain" && state != "partial" {
				t.Errorf("want uncertain or partial: %s %s", final[0].Subject, final[0].Raw)
			}
		})
	}
}
