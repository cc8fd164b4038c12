package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"errand/internal/sandbox"
)

// A base URL with a path too much, or one of another service, answers 404 or 405 to
// everything: that is nobody's request's fault, and none fails for it.
func TestAnAddressThatIsNotThereFailsNoRequest(t *testing.T) {
	full(t)
	for _, status := range []int{http.StatusNotFound, http.StatusMethodNotAllowed} {
		for _, q := range operations {
			runInBubble(t, fmt.Sprint(status, " ", q.Requested()), func(t *testing.T, b *bubble) {
				b.script = answers(status, time.Now().Add(10*time.Minute))
				const n = 3
				for i := range n {
					b.publish(q.Requested(), q.request(fmt.Sprint("r", i)))
				}
				b.run(b.program(q, 8), time.Hour, b.published(q.Subject(q.succeeded, "*"), n))
				if failed := b.events(q.Subject("failed", "*")); len(failed) != 0 {
					t.Errorf("%d of %d failed: %v", len(failed), n, failed[0])
				}
				if got := b.count(q.Subject(q.succeeded, "*")); got != n {
					t.Errorf("%d of %d ended well\n%s", got, n, b.logs)
				}
				for _, d := range b.events(q.Subject("deferred", "*")) {
					if d.reason() != "held" || number(d.Body["http_status"]) != status {
						t.Errorf("want held and %d: %v", status, d)
					}
				}
			})
		}
	}
}

// What the email service says in its envelope counts like the status.
func TestAnEnvelopeOfAnAddressThatIsNotThereFailsNoMessage(t *testing.T) {
	for _, status := range []int{http.StatusNotFound, http.StatusMethodNotAllowed} {
		runInBubble(t, fmt.Sprint(status), func(t *testing.T, b *bubble) {
			b.fault(sandbox.Fault{Operation: "send", Kind: sandbox.Status, Status: 200, Times: 1,
				Body: json.RawMessage(fmt.Sprintf(`{"error":true,"status_code":%d,"message":"Not found","data":{}}`, status))})
			b.publish("mail.send.requested", message("m1", 1))
			b.run(b.mails(), time.Hour, b.ended("mail.send", "m1"))
			b.wantEnd("mail.send", "accepted", "m1")
			if d := b.wantOne("mail.send.deferred.m1"); d.reason() != "held" || number(d.Body["http_status"]) != status {
				t.Errorf("want held and %d: %v", status, d)
			}
		})
	}
}

// A 400 or 422 is about its request, whatever words it uses: it fails at once, and keeps
// no other one waiting.
func TestWordsOfQuotaDoNotHoldARefusedRequest(t *testing.T) {
	for _, c := range []struct {
		http, envelope int
		message        string
	}{
		{422, 422, "The subject must not speak of credit."},
		{400, 400, "Quota exceeded"},
		{422, 422, "Your account was suspended."},
		{200, 422, "limit_quota reached"},
		{400, 0, "Insufficient credits"},
	} {
		runInBubble(t, fmt.Sprint(c.http, " ", c.envelope, " ", c.message), func(t *testing.T, b *bubble) {
			body := fmt.Sprintf(`{"error":true,"status_code":%d,"message":%q,"data":{}}`, c.envelope, c.message)
			if c.envelope == 0 {
				body = fmt.Sprintf(`{"error":true,"message":%q}`, c.message)
			}
			b.fault(sandbox.Fault{Operation: "send", Kind: sandbox.Status, Status: c.http, Body: json.RawMessage(body), Match: "bad-"})
			for _, id := range []string{"bad-1", "bad-2", "bad-3", "good"} {
				b.publish("mail.send.requested", message(id, 1))
			}
			began := time.Now()
			b.run(b.mails(), 10*time.Minute, func() bool { return b.published("mail.send.failed.*", 3)() && b.ended("mail.send", "good")() })
			for _, id := range []string{"bad-1", "bad-2", "bad-3"} {
				if e := b.wantEnd("mail.send", "failed", id); e.reason() != "refused" || stamp(t, e).Sub(began) > 5*time.Second {
					t.Errorf("want refused at once: %v", e)
				}
			}
			if e := b.wantEnd("mail.send", "accepted", "good"); stamp(t, e).Sub(began) > 5*time.Second {
				t.Errorf("the good one waited: %v", e)
			}
		})
	}
}
