package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"errand/internal/bus"
	"errand/internal/sandbox"
	"errand/pkg/messages"
)

// Somebody deletes from under a running program each thing that it needs, or changes
// it: the program says so, makes no call whose outcome it could not publish, and works again by
// itself when it is provisioned.
func TestWhatIsMissingFromNATSIsReportedAndRecoveredFrom(t *testing.T) {
	in := install(t)
	p := in.start("mandate-consumer")
	in.untilReady(p)
	bad := enrollment("bad")
	delete(bad, "amount")
	for n, c := range []struct {
		gone    string // what the program says
		take    func() error
		request map[string]any
		state   messages.State
		before  bool // the request comes while it is gone
	}{
		{"consumer mandate-enroll is gone: run `errand provision --missing`", func() error { return in.js.DeleteConsumer(t.Context(), bus.MandateRequests, "mandate-enroll") },
			enrollment("consumer"), messages.Succeeded, true},
		{"no stream MANDATE_EVENTS: run `errand provision --missing`", func() error { return in.js.DeleteStream(t.Context(), bus.MandateEvents) },
			enrollment("events"), messages.Succeeded, true},
		{"no stream DEAD_LETTERS: run `errand provision --missing`", func() error { return in.js.DeleteStream(t.Context(), bus.DeadLetters) },
			bad, messages.Failed, true},
		{"consumer mandate-enroll is gone: run `errand provision --missing`", func() error { return in.js.DeleteStream(t.Context(), bus.MandateRequests) },
			enrollment("requests"), messages.Succeeded, false},
		{"consumer mandate-enroll does not suit: MaxDeliver is 7, must be -1: run `errand provision`", func() error { return in.change(bus.EnrollQueue, 7) },
			enrollment("settings"), messages.Succeeded, true},
	} {
		must(t, c.take())
		in.until("it to say "+c.gone, time.Minute, func() bool {
			status, body := p.get("/readyz")
			return status == http.StatusServiceUnavailable && strings.Contains(body, c.gone)
		})
		id, calls := c.request["request_id"].(string), in.calls("enroll")
		if c.before {
			in.publish("mandate.enroll.requested", c.request)
		}
		if id == "events" {
			in.until("the request to be taken", time.Minute, func() bool { return in.queue(bus.EnrollQueue).NumAckPending == 1 })
		}
		if now := in.calls("enroll"); id == "events" && now != calls {
			t.Errorf("%d calls whose outcome could not have been published", now-calls)
		}
		in.provision(in.js.Conn(), 1)
		in.untilReady(p)
		if !c.before {
			in.publish("mandate.enroll.requested", c.request)
		}
		in.waitOutcomes("mandate.enroll.*."+id, 1, time.Minute)
		if e := in.wantFinal("mandate.enroll.*." + id); e.state() != c.state {
			t.Errorf("%d: %s is %s: %s", n, id, e.state(), e.Raw)
		}
		in.untilSettled(bus.EnrollQueue)
	}
	in.wantOne("dead.mandate.enroll.requested")
	if o := in.totals(); o.Enroll.TwiceCount != 0 || o.Calls["enroll"] != 4 {
		t.Errorf("%d enrolled twice by %d calls for four requests", o.Enroll.TwiceCount, o.Calls["enroll"])
	}
	if warnings := strings.Count(p.output.String(), `"level":"warn"`); warnings > 20 {
		t.Errorf("it warned %d times", warnings)
	}
	p.stop(time.Minute)
}

// The stream of the events is deleted during a call, and created again: the
// call has its outcome, and is not made again.
func TestAStreamRecreatedDuringACallGetsItsOutcome(t *testing.T) {
	in := install(t, "UPSTREAM_TIMEOUT=20s")
	in.fault(sandbox.Fault{Operation: "enroll", Kind: sandbox.DelayAnswer, Delay: sandbox.Duration(5 * time.Second)})
	p := in.start("mandate-consumer")
	in.publish("mandate.enroll.requested", enrollment("r1"))
	in.until("the call", time.Minute, func() bool { return in.calls("enroll") == 1 })
	must(t, in.js.DeleteStream(t.Context(), bus.MandateEvents))
	in.provision(in.js.Conn(), 1)
	in.waitOutcomes("mandate.enroll.*.r1", 1, time.Minute)
	in.untilSettled(bus.EnrollQueue)
	if e := in.wantOne("mandate.enroll.*.r1"); e.state() != messages.Succeeded || in.calls("enroll") != 1 {
		t.Errorf("%d calls; %s: %s", in.calls("enroll"), e.Subject, e.Raw)
	}
	p.stop(time.Minute)
}

// The same for the mail consumer and the poller, in short.
func TestMailProgramsReportMissingStreams(t *testing.T) {
	in := install(t)
	mail, poller := in.start("mail-consumer"), in.start("log-poller")
	in.untilReady(mail)
	in.untilReady(poller)
	in.publish("mail.send.requested", message("m0", 3))
	in.until("the log to be published", time.Minute, func() bool { return in.count("mail.delivery.*.*") >= 3 })
	for _, stream := range []string{bus.MailEvents, bus.MailDeliveries} {
		must(t, in.js.DeleteStream(t.Context(), stream))
	}
	for p, stream := range map[*process]string{mail: bus.MailEvents, poller: bus.MailDeliveries} {
		in.until("it to miss its stream", time.Minute, func() bool {
			status, body := p.get("/readyz")
			return status == http.StatusServiceUnavailable && strings.Contains(body, "no stream "+stream) && strings.Contains(body, ": run `errand provision --missing`")
		})
	}
	in.publish("mail.send.requested", message("m1", 3))
	in.provision(in.js.Conn(), 1)
	in.untilReady(mail)
	in.untilReady(poller)
	in.waitOutcomes("mail.send.*.m1", 1, time.Minute)
	in.until("the new rows to be published", time.Minute, func() bool { return in.count("mail.delivery.*.*") >= 3 })
	if e := in.wantFinal("mail.send.*.m1"); e.state() != messages.Accepted || in.oracle().Mail.TwiceCount != 0 {
		t.Errorf("body: %s", e.Raw)
	}
	mail.stop(time.Minute)
	poller.stop(time.Minute)
}

// change sets MaxDeliver of a queue's consumer.
func (in *installation) change(q bus.Queue, deliveries int) error {
	c, err := in.js.Consumer(in.t.Context(), q.Stream, q.Name)
	if err != nil {
		return err
	}
	config := c.CachedInfo().Config
	config.MaxDeliver = deliveries
	if _, err := in.js.UpdateConsumer(in.t.Context(), q.Stream, config); err != nil {
		return fmt.Errorf("%s: %w", q.Name, err)
	}
	return nil
}
