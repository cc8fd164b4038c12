package sink

import (
	"testing"

	"errand/pkg/messages"
)

// What a poller learns again it does not report again: rows by their ids, summaries by their headers.
func TestEveryEventOfADeliveryIsLearned(t *testing.T) {
	for subject, want := range map[string]bool{
		messages.Delivery.Subject(messages.Delivered, "m1"):               true,
		messages.Delivery.Subject(messages.Delivered, messages.Unmatched): true,
		messages.Delivery.Subject(messages.Summary, "m1"):                 true,
		messages.Log.Subject(messages.Marked, ""):                         false,
		"mail.log.turn": false,
	} {
		e, ok := parse(Stored{Subject: subject, ID: "0123456789abcdef0123456789abcdef", Note: "1.2"})
		if ok != want || want && e.Request == "" {
			t.Errorf("%s: got %+v, %t, want %t", subject, e, ok, want)
		}
	}
}
