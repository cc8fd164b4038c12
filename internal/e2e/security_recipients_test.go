package e2e

import (
	"strings"
	"testing"
	"time"

	"errand/pkg/messages"
)

// RECIPIENT_KEY is begun with and replaced as docs/run/security.md says, the poller first, while
// messages are sent: every row of the sending log finds its call, whichever secret made
// its keys and whichever program was between two of them when it came.
func TestNoRowLosesItsCallWhileRecipientKeysChange(t *testing.T) {
	in := install(t)
	first, second := strings.Repeat("1", 32), strings.Repeat("2", 32)
	poller, consumer := in.start("log-poller"), in.start("mail-consumer")
	sent := 0
	for _, change := range []struct{ program, key string }{
		{"log-poller", first}, {"mail-consumer", first}, {"log-poller", second + "," + first}, {"mail-consumer", second}, {"", ""},
	} {
		id := "before-" + change.program + change.key[:min(1, len(change.key))]
		in.publish("mail.send.requested", message(id, 3, "from", "shop@example.test"))
		in.until(id+" to be sent", time.Minute, func() bool { return in.count("mail.send.accepted."+id) > 0 })
		sent += 3
		switch change.program {
		case "log-poller":
			poller.stop(time.Minute)
			poller = in.start(change.program, "RECIPIENT_KEY="+change.key)
		case "mail-consumer":
			consumer.stop(time.Minute)
			consumer = in.start(change.program, "RECIPIENT_KEY="+change.key)
		}
	}
	in.until("every row to be published", time.Minute, func() bool { return in.count("mail.delivery.delivered.*") == sent })
	for _, e := range in.events("mail.delivery.delivered.*") {
		if got := decode[messages.DeliveryBody](t, e).Match; got.Confidence != messages.MatchExact {
			t.Errorf("%s: the match is %+v", e.Subject, got)
		}
	}
	secrets := map[string]int{}
	for _, e := range in.events("mail.log.sent.*.*") {
		id := "none"
		if record := decode[messages.SentBody](t, e); record.Secret != nil {
			id = record.Secret.ID
		}
		secrets[id]++
	}
	if secrets["none"] == 0 || secrets[messages.NewRecipientSecret(first).ID()] == 0 || secrets[messages.NewRecipientSecret(second).ID()] == 0 {
		t.Errorf("records by secret: %v, want some of each", secrets)
	}
	in.untilReady(poller)
}
