package e2e

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/oncall/inspect"
	"errand/internal/programs"
	"errand/internal/sandbox"
)

// strand has the server forget what a queue has before a sequence, as its faults do.
func (w *world) strand(q bus.Queue, sequence uint64) {
	w.t.Helper()
	insist(w.t, func() (*jetstream.ConsumerResetResponse, error) {
		return w.js.ResetConsumerToSequence(w.t.Context(), q.Stream, q.Name, sequence)
	})
}

// A consumer that is ahead of messages that it never delivered: nothing waits, as far as the server says.
func TestRequestsThatTheirQueueForgotAreRunAllTheSame(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		b.request(enrollOp, "r", 5)
		b.request(listOp, "l", 1) // the stream is the same, the queue is another
		b.strand(bus.EnrollQueue, 6)
		reader := inspect.Reader{Conn: b.js.Conn(), JS: b.js}
		time.Sleep(3 * time.Minute)
		status, err := reader.Status(t.Context(), time.Now())
		must(t, err)
		says := "mandate.enroll: the queue has forgotten 5 of its requests: errand provision --missing --repair"
		errorIf(t, !slices.ContainsFunc(status.Problems, func(p inspect.Problem) bool { return p.What == says }), "%+v", status.Problems)
		stuck, err := reader.Stuck(t.Context(), time.Now(), 100, time.Now())
		errorIf(t, err != nil || len(stuck.Causes) < 1 || stuck.Causes[0].Count != 5 ||
			stuck.Causes[0].Why != "its queue has forgotten it: errand provision --missing --repair", "%+v %v", stuck.Causes, err)
		log := b.keepLogs()
		b.run(b.mandates(), 10*time.Minute, nil)
		errorIf(t, b.count("mandate.enroll.succeeded.*") != 5 || b.calls("enroll") != 5 || b.queued() != 0,
			"%d of 5 are enrolled, by %d calls; %d wait", b.count("mandate.enroll.succeeded.*"), b.calls("enroll"), b.queued())
		const line = `"op":"mandate.enroll","requests":5,"message":"the queue had forgotten requests: it is started over"`
		errorIf(t, strings.Count(log.String(), line) != 1, "the log lacks %s:\n%s", line, log)
	})
}

// The test is short by default. For a day of virtual time, which takes six minutes:
//
//	go test ./internal/e2e -run TestQueuesHealUnderLoad -v -heal.for 24h
var healFor = flag.Duration("heal.for", time.Hour, "virtual time for which servers forget requests")

// Servers that forget requests, deliver them again, or make a queue again, with streams that are full at times and programs
// that end: everything is run, once, and no queue has anything left.
func TestQueuesHealUnderLoad(t *testing.T) {
	full(t)
	inBubble(t, func(t *testing.T, b *bubble) {
		draw := rand.New(rand.NewPCG(24, 2))
		for _, stream := range []string{bus.MandateEvents, bus.MailEvents, bus.DeadLetters} {
			b.configure(stream, func(c *jetstream.StreamConfig) { c.MaxAge = 0 }) // to the server, a bubble's messages are old when it is changed
		}
		log := b.keepLogs()
		b.latency(3 * time.Second)
		for _, operation := range []string{"enroll", "send"} {
			b.fault(sandbox.Fault{Operation: operation, Kind: sandbox.Status, Status: 503, Share: 0.3, Seed: draw.Uint64()})
		}
		all := func() []programs.Program { return []programs.Program{b.mandates(), b.mandates(), b.mails(), b.mails()} }
		stop := b.running(all()...)
		rounds, forgotten := 0, 0
		asked := map[*operation]int{}
		for end := time.Now().Add(*healFor); time.Now().Before(end); rounds++ {
			time.Sleep(time.Minute) // after their start
			away := draw.IntN(2) == 0
			if away {
				stop()
			}
			for _, o := range operations {
				n := draw.IntN(12)
				b.request(o, fmt.Sprint("r", rounds, "-"), n)
				asked[o] += n
			}
			time.Sleep(time.Duration(draw.Int64N(int64(4 * time.Second))))
			for _, o := range operations {
				state := b.stream(o.queue.Stream).CachedInfo().State
				switch draw.IntN(4) {
				case 0:
					must(t, b.js.DeleteConsumer(t.Context(), o.queue.Stream, o.queue.Name))
					_, err := b.js.CreateConsumer(t.Context(), o.queue.Stream, o.queue.Config(bus.Limits{}))
					must(t, err)
				case 1:
					b.strand(o.queue, 1+draw.Uint64N(state.LastSeq+1)) // back, or ahead
				default:
					b.strand(o.queue, state.LastSeq+1)
				}
				n, err := bus.Forgotten(t.Context(), b.js, o.queue)
				must(t, err)
				forgotten += n
			}
			if away {
				stop = b.running(all()...)
			}
			full := []string{bus.MandateEvents, bus.MailEvents, bus.DeadLetters, ""}[draw.IntN(4)]
			if full != "" { // for less than it has, it would drop events
				b.configure(full, func(c *jetstream.StreamConfig) { c.MaxBytes = int64(b.stream(full).CachedInfo().State.Bytes) + 16<<10 })
			}
			time.Sleep(time.Duration(draw.Int64N(int64(5 * time.Minute))))
			if full != "" {
				b.configure(full, func(c *jetstream.StreamConfig) { c.MaxBytes = -1 })
			}
			time.Sleep(time.Duration(draw.Int64N(int64(10 * time.Minute))))
		}
		time.Sleep(2 * time.Hour) // longer than a deferral
		stop()
		o := b.oracle()
		errorIf(t, o.Enroll.TwiceCount+o.Mail.TwiceCount != 0, "enrolled twice %v, sent twice %v", o.Enroll.Twice, o.Mail.Twice)
		for _, o := range operations {
			ends := b.outcomes(o.events())
			if pending := b.queue(o.queue); len(ends) != asked[o] || b.unsettled(o.queue) != 0 || pending.NumAckPending != 0 {
				t.Errorf("%s: %d of %d ended: %v", o.Operation, len(ends), asked[o], tally(ends))
			}
			t.Logf("%s: %v", o.Operation, tally(ends))
		}
		left, healed := b.queued(), strings.Count(log.String(), "it is started over")
		errorIf(t, left != 0 || healed == 0, "%d requests are left in the queues, %d times one was started over", left, healed)
		t.Logf("%v: %d rounds; %d requests were forgotten, %d times a queue was started over", *healFor, rounds, forgotten, healed)
	})
}
