package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"errand/internal/sandbox"
	"errand/pkg/messages"
)

// The payer of the enrollments of this file; nothing else in them looks like this.
var payer = map[string]string{"payer_name": "Zoe Quill", "payer_email": "zoe@quill.example.test", "payer_id": "911122334455",
	"payer_telephone_number": "60177777777"}

func ofPayer(id string, more ...string) map[string]any {
	e := enrollment(id, more...)
	for name, value := range payer {
		e[name] = value
	}
	return e
}

// With EVENT_PAYER_DATA=none no event holds anything of a payer, however an enrollment
// ends and whatever the service says of it; with full the answers do.
func TestEventsHoldNoPayerWhereTheyAreNotTo(t *testing.T) {
	for _, setting := range []string{"full", "none"} {
		runInBubble(t, setting, func(t *testing.T, b *bubble) {
			p := b.mandates()
			p.EventPayerData = setting
			b.fault(sandbox.Fault{Operation: "enroll", Kind: sandbox.Status, Status: 422, Match: "order-refused",
				Body: []byte(fmt.Sprintf(`{"message":"%s is not wanted","errors":{"payer_email":["ZOE@quill.example.test, id 911122334455"]}}`,
					payer["payer_name"]))})
			b.fault(sandbox.Fault{Operation: "enroll", Kind: sandbox.AcceptCut, Match: "order-lost"})
			for _, id := range []string{"done", "refused", "lost"} {
				b.publish("mandate.enroll.requested", ofPayer(id, "portal_key", "own-portal-of-"+id))
			}
			b.run(p, 5*time.Hour, func() bool {
				return b.count("mandate.enroll.resolved.lost") > 0 && b.count("mandate.enroll.failed.refused") > 0
			})
			b.publish("mandate.transactions.requested", map[string]any{"request_id": "all"})
			b.run(p, time.Minute, func() bool { return b.count("mandate.transactions.listed.all") > 0 })

			shown := map[string]bool{}
			for _, e := range b.events("mandate.*.*.*") {
				for name, value := range payer {
					if strings.Contains(strings.ToLower(e.Raw+fmt.Sprint(e.Header)), strings.ToLower(value)) {
						shown[string(messages.StateOf(e.Subject))] = true
						errorIf(t, setting == "none", "%s shows %s: %s", e.Subject, name, e.Raw)
					}
				}
			}
			for _, state := range []string{"succeeded", "failed", "uncertain", "resolved", "page"} {
				errorIf(t, setting == "full" && !shown[state], "no %s shows the payer: it was looked for in too little", state)
			}
			done := decode[messages.EnrollSucceeded](t, b.wantOne("mandate.enroll.succeeded.done"))
			for _, kept := range []string{`"url":"http://127.0.0.1:8085/enroll/`, `"order_number":"order-done"`, `"amount":`, `"frequency_mode":`,
				`"effective_date":`} {
				errorIf(t, !strings.Contains(string(done.Enrollment), kept), "the enrollment lacks %s: %s", kept, done.Enrollment)
			}
		})
	}
}

// With RECIPIENT_KEY a record holds no key that could be made without it, and the sending
// log's rows are found all the same.
func TestRecipientsKeysAreMadeWithTheSecret(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		secret := strings.Repeat("s", 40)
		consumer, poller := b.mails(), b.poller()
		consumer.RecipientKey.RecipientKey, poller.RecipientKey.RecipientKey = secret, strings.Repeat("n", 40)+","+secret
		b.publish("mail.send.requested", map[string]any{"request_id": "m", "from": "shop@example.test", "to": []string{"Zoe@example.test"},
			"subject": "s", "content": "c"})
		b.run(consumer, time.Minute, func() bool { return b.count("mail.send.accepted.m") > 0 })
		b.run(poller, 10*time.Minute, func() bool { return b.count("mail.delivery.delivered.m") > 0 })
		record := decode[messages.SentBody](t, b.wantOne("mail.log.sent.m.1"))
		errorIf(t, record.Secret == nil || record.Secret.ID != messages.NewRecipientSecret(secret).ID(),
			"the record is %+v", record)
		got := decode[messages.DeliveryBody](t, b.wantOne("mail.delivery.delivered.m"))
		errorIf(t, got.Match.Confidence != messages.MatchExact, "the match is %+v", got.Match)
	})
}

// An upstream that quotes a request's own portal_key in its answers, or another's in its list, makes no event show it.
func TestARequestsOwnPortalKeyReachesNoEvent(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		const own = "own-portal/key-of-one"
		b.fault(sandbox.Fault{Operation: "enroll", Kind: sandbox.AcceptStatus, Status: 200, Match: "order-quoted",
			Body: []byte(`{"url":"https://x.example.test/1","order_number":"order-quoted","portal_key":"own-portal\/key-of-one",` +
				`"note":"own\u002dportal/key-of-one, portal-for-tests"}`)})
		b.fault(sandbox.Fault{Operation: "transactions", Kind: sandbox.Status, Status: 200,
			Body: []byte(`{"data":[{"order_number":"order-x","portal_key":"whose-is-it","portal":"portal-for-tests"}]}`)})
		b.publish("mandate.enroll.requested", enrollment("quoted", "portal_key", own))
		b.publish("mandate.transactions.requested", map[string]any{"request_id": "all"})
		b.run(b.mandates(), time.Minute, func() bool {
			return b.count("mandate.enroll.succeeded.quoted") > 0 && b.count("mandate.transactions.listed.all") > 0
		})
		for _, e := range b.events("mandate.*.*.*") {
			for _, secret := range []string{"portal/key", `portal\/key`, "u002d", "portal-for-tests", "whose-is-it"} {
				errorIf(t, strings.Contains(e.Raw, secret), "%s shows %s: %s", e.Subject, secret, e.Raw)
			}
		}
		if e := b.wantOne("mandate.enroll.succeeded.quoted"); strings.Count(e.Raw, "[redacted]") < 3 {
			t.Errorf("the answer was not quoted: %s", e.Raw)
		}
	})
}
