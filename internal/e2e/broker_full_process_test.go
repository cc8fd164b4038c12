package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/oncall/inspect"
	"errand/internal/sandbox"
	"errand/internal/sandbox/devkit/devtest"
)

// The account, or the whole server, has no room while calls are under way: each program says at /readyz what the server
// answers, for as long as that lasts; it stores its outcomes when there is room, and is ready again by itself.
func TestNoRoomShowsInReadinessUntilThereIsSome(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, says string
		prepare    func(*testing.T, *installation) (fill func() (room func()))
	}{
		{"account", "resource limits exceeded for account", func(t *testing.T, in *installation) func() func() {
			account, err := in.nats.Server.LookupAccount("ERRAND")
			must(t, err)
			return func() func() { return limitAccount(t, account) }
		}},
		{"server", "insufficient resources", nearlyFill},
	} {
		for _, p := range writes {
			t.Run(c.name+", "+p.program, func(t *testing.T) {
				dir := releaseBuild.programs(t)
				parallel(t)
				n := devtest.Configured(t, strings.ReplaceAll(natsConfig(t), "max_file: 256MB",
					"max_file: 1MB")+"jetstream { max_file_store: 336MB }\n")
				in := installAt(t, dir, n.URL, 1, "UPSTREAM_TIMEOUT=20s")
				in.nats = n
				fill := c.prepare(t, in)
				in.publish(p.Requested(), p.request("warm"))
				program := in.start(p.program)
				in.waitOutcomes(p.events(), 1, time.Minute)
				in.untilReady(program)

				in.fault(sandbox.Fault{Operation: p.call, Kind: sandbox.DelayAnswer, Delay: sandbox.Duration(12 * time.Second)})
				in.publish(p.Requested(), p.request("r1", "on_unknown", "report"))
				in.until("the call", time.Minute, func() bool { return in.calls(p.call) == 2 })
				room := fill()
				in.keepsSaying(program, 20*time.Second, 10*time.Second, c.says)
				room()
				in.waitOutcomes(p.events(), 2, time.Minute)
				in.untilReady(program)
				program.stop(time.Minute)
				succeeded, calls := in.count(p.good()), in.calls(p.call)
				errorIf(t, succeeded != 2 || calls != 2, "%d of 2 succeeded, with %d calls: %v", succeeded, calls, in.subjects(p.events()))
				equal(t, "requests left", in.unsettled(p.queue), 0)
			})
		}
	}
}

// nearlyFill takes the room that the server has for files but for a few blocks, as to fill them all takes longer than a call. The
// function it returns takes these too.
func nearlyFill(t *testing.T, in *installation) func() (room func()) {
	s, err := in.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "FILLER", Subjects: []string{"filler"}})
	must(t, err)
	fill := func() func() {
		var full *jetstream.APIError
		for block := make([]byte, 1000<<10); full == nil; {
			if _, err := in.js.Publish(t.Context(), "filler", block); err != nil && !errors.As(err, &full) {
				t.Fatal(err)
			}
		}
		return func() { noError(t, in.js.DeleteStream(t.Context(), "FILLER")) }
	}
	fill()
	must(t, s.Purge(t.Context(), jetstream.WithPurgeSequence(4)))
	return fill
}

// A stream has reached its limit of bytes while others have room: the program that writes to it says so at /readyz for
// as long as that lasts, makes no call that it cannot record, drops nothing, and goes on by itself when there is room.
func TestAFullStreamShowsInReadinessUntilThereIsRoom(t *testing.T) {
	t.Parallel()
	bad := func(id string, _ ...string) map[string]any { return query(id) }
	for _, c := range []struct {
		stream string
		*operation
		request func(id string, more ...string) map[string]any
		calls   int64 // more, when there is room
	}{
		{bus.MandateEvents, enrollOp, enrollment, 1}, {bus.MailEvents, sendOp, toOne, 1},
		{bus.DeadLetters, enrollOp, bad, 0}, {bus.DeadLetters, sendOp, bad, 0},
	} {
		t.Run(c.stream+", "+c.program, func(t *testing.T) {
			in := install(t)
			in.publish(c.Requested(), c.operation.request("warm"))
			in.publish(c.Requested(), bad("bad")) // for the dead letters
			program := in.start(c.program)
			in.waitOutcomes(c.events(), 2, time.Minute)
			in.untilSettled(c.queue)
			stored, letters := in.stored(c.stream), in.stored(bus.DeadLetters)

			room := in.fill(c.stream)
			in.publish(c.Requested(), c.request("r1"))
			in.showsFull(program, c.stream)
			equal(t, "calls", in.calls(c.call), 1)
			now := in.stored(c.stream)
			errorIf(t, now != stored, "%s has %d messages, had %d before it was full", c.stream, now, stored)

			room()
			in.waitOutcomes(c.events(), 3, time.Minute)
			in.untilSettled(c.queue)
			in.untilReady(program)
			program.stop(time.Minute)
			equal(t, "calls", in.calls(c.call), 1+c.calls)
			more := in.stored(bus.DeadLetters) - letters
			errorIf(t, more != int(1-c.calls), "%d more dead letters, want %d", more, 1-c.calls)
		})
	}
}

// The stream of deliveries is full: the poller says so, and publishes each delivery once when there is room.
func TestAFullStreamOfDeliveriesShowsInThePollersReadiness(t *testing.T) {
	in := install(t)
	poller := in.start("log-poller")
	in.send("first")
	in.until("the first deliveries", time.Minute, func() bool { return in.count("mail.delivery.delivered.*") == 2 })
	room := in.fill(bus.MailDeliveries)
	in.send("second")
	in.showsFull(poller, bus.MailDeliveries)
	room()
	in.until("the other deliveries", time.Minute, func() bool { return in.count("mail.delivery.delivered.*") >= 4 })
	in.untilReady(poller)
	poller.stop(time.Minute)
	equal(t, "deliveries published", in.count("mail.delivery.delivered.*"), 4)
}

// fill leaves a stream no room for more than it holds.
func (in *installation) fill(stream string) (room func()) {
	in.t.Helper()
	bytes := int64(in.stream(stream).CachedInfo().State.Bytes)
	in.configure(stream, func(c *jetstream.StreamConfig) { c.MaxBytes = bytes })
	return func() { in.configure(stream, func(c *jetstream.StreamConfig) { c.MaxBytes = bus.Unlimited }) }
}

// keepsSaying wants a program not to be ready, in these words, within a time and then for a while.
func (in *installation) keepsSaying(p *process, within, while time.Duration, words ...string) {
	in.t.Helper()
	says := p.says(http.StatusServiceUnavailable, words...)
	in.until(fmt.Sprintf("/readyz to say %q", words), within, says)
	for end := time.Now().Add(while); time.Now().Before(end); wait(in.t.Context(), 500*time.Millisecond) {
		if !says() {
			in.t.Fatalf("/readyz no longer says %q while there is no room\n%s", words, p.lastOutput())
		}
	}
}

// showsFull wants a program to say that a stream is full, through two of its checks and in its metrics.
func (in *installation) showsFull(p *process, stream string) {
	in.t.Helper()
	in.keepsSaying(p, time.Minute, 6*time.Second, "NATS does not store in "+stream, "maximum bytes exceeded")
	reader, why := inspect.Reader{Conn: in.js.Conn(), JS: in.js}, "NATS does not store in "+stream
	stuck, err := reader.Stuck(in.t.Context(), time.Now(), 100, time.Now())
	must(in.t, err)
	for _, o := range stuck.Requests {
		errorIf(in.t, !strings.HasPrefix(o.Why, why), "while %s is full, %s waits: %s", stream, o.RequestID, o.Why)
		stories, err := reader.Stories(in.t.Context(), o.RequestID, time.Now())
		must(in.t, err)
		errorIf(in.t, !strings.Contains(stories[0].Says, why), "while %s is full, %s is shown as %s", stream, o.RequestID, stories[0].Says)
	}
	status, err := reader.Status(in.t.Context(), time.Now())
	must(in.t, err)
	named := slices.ContainsFunc(status.Problems, func(p inspect.Problem) bool {
		return p.Kind == "nobody_ready" && strings.Contains(p.What, why)
	})
	errorIf(in.t, !named, "while %s is full, the problems are %+v", stream, status.Problems)
	in.until("/metrics to say that "+stream+" is full", time.Minute, func() bool { // its bytes change while the writer tries again
		_, metrics := p.get("/metrics")
		info := in.stream(stream).CachedInfo()
		return strings.Contains(metrics, fmt.Sprintf("errand_stream_fault{stream=%q} 1\n", stream)) &&
			strings.Contains(metrics, fmt.Sprintf("errand_stream_bytes{stream=%q} %v\n", stream, float64(info.State.Bytes))) &&
			strings.Contains(metrics, fmt.Sprintf("errand_stream_max_bytes{stream=%q} %v\n", stream, float64(info.Config.MaxBytes)))
	})
}
