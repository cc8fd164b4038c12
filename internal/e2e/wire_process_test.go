package e2e

import (
	"fmt"
	"net"
	"testing"
	"time"

	"errand/pkg/messages"
)

// What an upstream says on a connection on which nobody asks names payers: a second
// answer, the rest of one. Of that nothing reaches what a program prints, which every
// installation looks at in the end.
func TestAnAnswerNobodyAskedForIsNotPrinted(t *testing.T) {
	const requests = 20
	in := install(t, "CONCURRENCY=2")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	w := newWire(t, in.box, l)
	w.pick = func(string) fault {
		return func(c *call) bool {
			a := c.work()
			a.body = a.body[:len(a.body)-1] + `,"payer_name":"Test Payer"}`
			return c.say(a.with("") + a.with(""))
		}
	}
	for i := range requests {
		in.publish("mandate.enroll.requested", enrollment(fmt.Sprint("r", i)))
	}
	p := in.start("mandate-consumer", "MANDATE_API_URL=http://"+l.Addr().String())
	in.waitOutcomes("mandate.enroll.*.*", requests, time.Minute)
	p.stop(time.Minute)
	for id, history := range in.histories("mandate.enroll.*.*") {
		if e, err := finalEvent(history); err != nil || e.state() != messages.Succeeded && e.reason() != "link_lost" {
			t.Errorf("%s: %v %s", id, err, e.Raw)
		}
	}
}
