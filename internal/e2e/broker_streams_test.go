package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/sandbox"
	"errand/pkg/messages"
)

// Somebody deletes from under a running program each thing that it needs, or changes it: the program says so, makes no
// call whose outcome it could not publish, and works again by itself when it is provisioned.
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
		{"consumer mandate-enroll is gone: run `errand provision --missing`",
			func() error { return in.js.DeleteConsumer(t.Context(), bus.MandateRequests, "mandate-enroll") },
			enrollment("consumer"), messages.Succeeded, true},
		{"no stream MANDATE_EVENTS: run `errand provision --missing`", func() error { return in.js.DeleteStream(t.Context(), bus.MandateEvents) },
			enrollment("events"), messages.Succeeded, true},
		{"no stream DEAD_LETTERS: run `errand provision --missing`", func() error { return in.js.DeleteStream(t.Context(), bus.DeadLetters) },
			bad, messages.Failed, true},
		{"consumer mandate-enroll is gone: run `errand provision --missing`",
			func() error { return in.js.DeleteStream(t.Context(), bus.MandateRequests) },
			enrollment("requests"), messages.Succeeded, false},
		{"consumer mandate-enroll: MaxDeliver is 7, must be -1: run `errand provision`",
			func() error { return in.change(bus.EnrollQueue, 7) },
			enrollment("settings"), messages.Succeeded, true},
	} {
		must(t, c.take())
		in.until("it to say "+c.gone, time.Minute, p.says(http.StatusServiceUnavailable, c.gone))
		id, calls := c.request["request_id"].(string), in.calls("enroll")
		if c.before {
			in.publish("mandate.enroll.requested", c.request)
		}
		if id == "events" {
			in.until("the request to be taken", time.Minute, func() bool { return in.queue(bus.EnrollQueue).NumAckPending == 1 })
		}
		now := in.calls("enroll")
		errorIf(t, id == "events" && now != calls, "%d calls whose outcome could not have been published", now-calls)
		in.provision(in.js.Conn(), 1)
		in.untilReady(p)
		if !c.before {
			in.publish("mandate.enroll.requested", c.request)
		}
		in.waitOutcomes("mandate.enroll.*."+id, 1, time.Minute)
		e := in.wantFinal("mandate.enroll.*." + id)
		errorIf(t, e.state() != c.state, "%d: %s is %s: %s", n, id, e.state(), e.Raw)
		in.untilSettled(bus.EnrollQueue)
	}
	in.wantOne("dead.mandate.enroll.requested")
	if o := in.totals(); o.Enroll.TwiceCount != 0 || o.Calls["enroll"] != 4 {
		t.Errorf("%d enrolled twice by %d calls for four requests", o.Enroll.TwiceCount, o.Calls["enroll"])
	}
	warnings := strings.Count(p.output.String(), `"level":"warn"`)
	errorIf(t, warnings > 20, "it warned %d times", warnings)
	p.stop(time.Minute)
}

// The stream of the events is deleted during a call, and created again: the call has its outcome, and is not made again.
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
	e := in.wantOne("mandate.enroll.*.r1")
	errorIf(t, e.state() != messages.Succeeded || in.calls("enroll") != 1, "%d calls; %s: %s", in.calls("enroll"), e.Subject, e.Raw)
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
		says := p.says(http.StatusServiceUnavailable, "no stream "+stream, ": run `errand provision --missing`")
		in.until("it to miss its stream", time.Minute, says)
	}
	in.publish("mail.send.requested", message("m1", 3))
	in.provision(in.js.Conn(), 1)
	in.untilReady(mail)
	in.untilReady(poller)
	in.waitOutcomes("mail.send.*.m1", 1, time.Minute)
	in.until("the new rows to be published", time.Minute, func() bool { return in.count("mail.delivery.*.*") >= 3 })
	e := in.wantFinal("mail.send.*.m1")
	errorIf(t, e.state() != messages.Accepted || in.oracle().Mail.TwiceCount != 0, "body: %s", e.Raw)
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

// backup returns the messages of a stream, as they are now.
func (b *bubble) backup(stream string) (all []*nats.Msg) {
	b.t.Helper()
	s := b.stream(stream)
	for seq := uint64(1); seq <= s.CachedInfo().State.LastSeq; seq++ {
		m, err := s.GetMsg(b.t.Context(), seq)
		must(b.t, err)
		for name := range m.Header {
			if strings.HasPrefix(name, "Nats-") {
				m.Header.Del(name)
			}
		}
		all = append(all, &nats.Msg{Subject: m.Subject, Data: m.Data, Header: m.Header})
	}
	return all
}

// restore makes a stream again that has only what a backup has.
func (b *bubble) restore(stream string, backup []*nats.Msg) {
	config := b.stream(stream).CachedInfo().Config
	err := b.js.DeleteStream(b.t.Context(), stream)
	if err == nil {
		_, err = b.js.CreateStream(b.t.Context(), config)
	}
	for i := 0; i < len(backup) && err == nil; i++ {
		var ack *jetstream.PubAck
		if ack, err = b.js.PublishMsg(b.t.Context(), backup[i]); err == nil && ack.Sequence != uint64(i+1) {
			err = fmt.Errorf("stored at %d, want %d", ack.Sequence, i+1)
		}
	}
	must(b.t, err)
}

// An older copy of MANDATE_EVENTS is restored while the poller is at work: what was lost of the
// list is published again, once, and records of enrollments that come then, whose events have
// the sequences of lost ones, belong to their requests.
func TestARunningPollerPublishesAgainWhatARestoredStreamHasLost(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		const n = 10
		enroll := func(from, to int) {
			for i := from; i < to; i++ {
				b.publish("mandate.enroll.requested", enrollment(fmt.Sprint("r", i)))
			}
			b.run(b.mandates(), time.Hour, func() bool { return b.count("mandate.enroll.succeeded.*") == to })
		}
		approve := func(from, to int) {
			for i := from; i < to; i++ {
				b.decide(fmt.Sprint("order-r", i), sandbox.Approve)
			}
		}
		listed := func(status string, n int) func() bool { return b.published("mandate.application."+status+".*", n) }
		await := func(is func() bool) {
			for end := time.Now().Add(3 * time.Hour); !is() && time.Now().Before(end); {
				time.Sleep(10 * time.Second)
			}
		}
		enroll(0, n)
		stop := b.running(b.transactions())
		await(listed("new", n))
		backup := b.backup(bus.MandateEvents)
		approve(0, n)
		await(listed("approved", n))
		b.restore(bus.MandateEvents, backup)
		enroll(n, 2*n)
		approve(n, 2*n)
		await(listed("approved", 2*n))
		time.Sleep(3 * time.Hour) // the whole list is read again
		stop()
		for _, status := range []messages.State{"new", "approved"} {
			for i := range 2 * n {
				got := len(b.events(messages.Application.Subject(status, fmt.Sprint("r", i))))
				errorIf(t, got > 1 || got == 0 && (status == "approved" || i < n), "r%d: %d events say %s", i, got, status)
			}
		}
		b.wantNone("mandate.application.*." + messages.Unmatched)
	})
}
