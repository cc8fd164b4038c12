package e2e

import (
	"maps"
	"strings"
	"testing"
	"time"

	"errand/internal/bus"
	"errand/internal/sandbox"
)

// The programs do what becomes of a mandate with the rights of their users: a return_url of
// their making, a callback that is stored, an approval that the list shows.
func TestAnApprovalIsPublishedAndItsCallbackStored(t *testing.T) {
	in := install(t)
	addr, secret := ports(t, 1)[0], "MANDATE_CALLBACK_SECRET="+strings.Repeat(secretMark, 4)
	receiver := in.start("callback-receiver", secret, "CALLBACK_LISTEN="+addr)
	consumer := in.start("mandate-consumer", secret, "MANDATE_CALLBACK_URL=http://"+addr+"/mandates")
	poller := in.start("transaction-poller", "TRANSACTIONS_INTERVAL=200ms")
	in.publish("mandate.enroll.requested", enrollment("r1"))
	in.until("the new application to be published", time.Minute, func() bool { return in.count("mandate.application.new.r1") == 1 })
	order, _ := enrollment("r1")["order_number"].(string)
	in.decide(order, sandbox.Approve)
	in.until("the callback to be stored", time.Minute, func() bool { return in.count("mandate.callback.received.r1") > 0 })
	in.until("the approval to be published", time.Minute, func() bool { return in.count("mandate.application.approved.r1") == 1 })
	want := map[string]bool{"callback-receiver": false, "mandate-consumer": false, bus.TransactionPoller: true} // who says how far a list is read
	in.until("all three to say how they are, and the poller that it has read the list", time.Minute, func() bool {
		said := map[string]bool{}
		answers, err := bus.AskStatus(t.Context(), in.js.Conn())
		for _, p := range answers {
			said[p.Program] = p.ReadThrough != nil
		}
		return err == nil && maps.Equal(said, want)
	})
	for _, p := range []*process{receiver, consumer, poller} {
		in.untilReady(p)
		p.stop(time.Minute)
	}
}
