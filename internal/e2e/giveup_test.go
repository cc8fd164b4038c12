package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/programs"
	"errand/internal/sandbox"
)

// keepFor sets how long a stream keeps its messages.
func (w *world) keepFor(stream string, d time.Duration) {
	w.t.Helper()
	w.configure(stream, func(c *jetstream.StreamConfig) { c.MaxAge = d })
}

// A request that is tried for longer than its events are kept would forget what it has
// done: it is refused, as is one that asks for more than a week.
func TestGiveUpAtIsBoundedByAWeekAndByWhatIsKept(t *testing.T) {
	const day = 24 * time.Hour
	for _, c := range []struct {
		name        string
		kept, ahead time.Duration
		valid       bool
	}{
		{"within a week", 30 * day, 7*day - time.Hour, true},
		{"beyond a week", 30 * day, 7*day + time.Hour, false},
		{"in 250 years", 30 * day, 250 * 365 * day, false},
		{"a day less than events are kept", 3 * day, 2*day - time.Hour, true},
		{"more than a day less than they are kept", 3 * day, 2*day + time.Hour, false},
		{"beyond what is kept", 3 * day, 4 * day, false},
	} {
		runInBubble(t, c.name, func(t *testing.T, b *bubble) {
			b.keepFor("MANDATE_EVENTS", c.kept)
			b.keepFor("MAIL_EVENTS", c.kept)
			giveUp := time.Now().Add(c.ahead).UTC().Format(time.RFC3339)
			b.publish("mandate.enroll.requested", enrollment("r1", "give_up_at", giveUp))
			b.publish("mail.send.requested", message("m1", 1, "give_up_at", giveUp))
			b.run(b.mandates(), time.Minute, b.ended("mandate.enroll", "r1"))
			b.run(b.mails(), time.Minute, b.ended("mail.send", "m1"))
			if c.valid {
				b.wantEnd("mandate.enroll", "succeeded", "r1")
				b.wantEnd("mail.send", "accepted", "m1")
				return
			}
			for _, e := range []event{b.wantEnd("mandate.enroll", "failed", "r1"), b.wantEnd("mail.send", "failed", "m1")} {
				fields, _ := e.Body["fields"].(map[string]any)
				errorIf(t, e.reason() != "invalid_request" || fields["give_up_at"] == nil, "want invalid_request for give_up_at: %s", e.Raw)
			}
			o := b.oracle()
			errorIf(t, o.Calls["enroll"]+o.Calls["send"] != 0, "calls: %v", o.Calls)
		})
	}
}

// Batches that were accepted are not sent again when the service comes back for the last one, however long that took.
func TestAcceptedBatchesAreNotForgottenBeforeTheirRequestEnds(t *testing.T) {
	full(t)
	inBubble(t, func(t *testing.T, b *bubble) {
		const kept = 26 * time.Hour
		b.keepFor("MAIL_EVENTS", kept)
		b.fault(about(2, sendBusy))
		b.publish("mail.send.requested", message("m1", 5, "give_up_at", time.Now().Add(kept+4*time.Hour).UTC().Format(time.RFC3339)))
		b.run(b.consumer("mail.send"), time.Minute, b.ended("mail.send", "m1"))
		final := len(b.finalOf("mail.send", "m1"))           // it may be removed in the end, by its age
		for time.Now().Before(epoch.Add(kept + time.Hour)) { // it is tried from time to time
			time.Sleep(4 * time.Hour)
			b.run(b.consumer("mail.send"), time.Minute, b.ended("mail.send", "m1"))
		}
		b.box.ClearFaults("*")
		b.run(b.consumer("mail.send"), time.Hour, b.ended("mail.send", "m1"))
		o := b.oracle()
		errorIf(t, o.Mail.TwiceCount != 0, "%d recipients served twice: %v", o.Mail.TwiceCount, o.Mail.Twice)
		final += len(b.finalOf("mail.send", "m1"))
		errorIf(t, final != 1, "%d final events, want one", final)
	})
}

// However many tries are left, no call begins once the request is given up; then it ends.
func TestNoCallIsMadeAfterGiveUpAt(t *testing.T) {
	for _, c := range []struct {
		name, operation string
		request         func(giveUp string) any
		state           string
		tries           int
		fault           sandbox.Fault
		ahead           time.Duration
	}{
		{"an enrollment", "mandate.enroll", func(at string) any { return enrollment("x", "give_up_at", at) }, "failed", 30, enrollBusy,
			6 * time.Second},
		{"an enrollment that is asked to wait", "mandate.enroll", func(at string) any { return enrollment("x", "give_up_at", at) }, "failed", 5,
			asking("enroll", 429, "8"), 5 * time.Second},
		{"a message", "mail.send", func(at string) any { return message("x", 2, "give_up_at", at) }, "failed", 30, sendBusy, 6 * time.Second},
		{"a message that is asked to wait", "mail.send", func(at string) any { return message("x", 2, "give_up_at", at) }, "failed", 5,
			asking("send", 429, "8"), 5 * time.Second},
		{"one of three batches", "mail.send", func(at string) any { return message("x", 5, "give_up_at", at) }, "partial", 30,
			sandbox.Fault{Operation: "send", Kind: sandbox.Status, Status: 503, Match: "x-2@"}, 6 * time.Second},
	} {
		runInBubble(t, c.name, func(t *testing.T, b *bubble) {
			b.fault(c.fault)
			giveUp := time.Now().Add(c.ahead).UTC().Truncate(time.Second)
			b.publish(c.operation+".requested", c.request(giveUp.Format(time.RFC3339)))
			var p programs.Program
			operation := "send"
			if c.operation == "mandate.enroll" {
				mandates := b.mandates()
				mandates.RetryTries, operation = c.tries, "enroll"
				p = mandates
			} else {
				mails := b.mails()
				mails.RetryTries, mails.BatchSize = c.tries, 2
				p = mails
			}
			b.run(p, 5*time.Minute, b.ended(c.operation, "x"))
			e := b.wantEnd(c.operation, c.state, "x")
			if late := e.at(t).Sub(giveUp); late < 0 || late > 2*time.Second {
				t.Errorf("ended %v after give_up_at: %s", late, e.Raw)
			}
			var late []time.Duration
			for _, call := range b.of(operation) {
				if by := call.at.Sub(giveUp); by >= 0 {
					late = append(late, by.Round(time.Millisecond))
				}
			}
			if len(late) > 0 {
				t.Errorf("%d calls after give_up_at, the first by %v, the last by %v", len(late), late[0], late[len(late)-1])
			}
		})
	}
}

// What an operator purges, or what ages out, under a deferred request does not keep the request from its end, and has nothing done twice.
func TestARequestEndsAfterItsStartedEventIsGone(t *testing.T) {
	full(t)
	for _, c := range []struct {
		name, operation, stream string
		request                 map[string]any
		faults                  []sandbox.Fault
		purged                  string
		size                    int // recipients a batch afterwards; before it is 2
	}{
		{"an enrollment", "mandate.enroll", "MANDATE_EVENTS", enrollment("x"), []sandbox.Fault{often(5, enrollBusy)},
			"mandate.enroll.started.x", 0},
		{"an enrollment, and the deferral", "mandate.enroll", "MANDATE_EVENTS", enrollment("x"), []sandbox.Fault{often(5, enrollBusy)},
			"mandate.enroll.*.x", 0},
		{"an enrollment of unknown fate", "mandate.enroll", "MANDATE_EVENTS", enrollment("x", "on_unknown", "retry"),
			[]sandbox.Fault{{Operation: "enroll", Kind: sandbox.Cut, Times: 1}, often(5, enrollBusy)}, "mandate.enroll.started.x", 0},
		{"a message", "mail.send", "MAIL_EVENTS", message("x", 2), []sandbox.Fault{often(5, sendBusy)}, "mail.send.started.x", 2},
		{"a message of three batches", "mail.send", "MAIL_EVENTS", message("x", 5),
			[]sandbox.Fault{{Operation: "send", Kind: sandbox.Status, Status: 503, Match: "x-2@", Times: 5}}, "mail.send.started.x", 2},
		{"a message of three batches, now of two", "mail.send", "MAIL_EVENTS", message("x", 5),
			[]sandbox.Fault{{Operation: "send", Kind: sandbox.Status, Status: 503, Match: "x-2@", Times: 5}}, "mail.send.started.x", 3},
	} {
		runInBubble(t, c.name, func(t *testing.T, b *bubble) {
			b.idle = 0
			program := func(size int) programs.Program {
				if c.operation == "mandate.enroll" {
					return b.mandates()
				}
				p := b.mails()
				p.BatchSize = size
				return p
			}
			for _, f := range c.faults {
				b.fault(f)
			}
			c.request["give_up_at"] = time.Now().Add(2 * time.Hour).UTC().Format(time.RFC3339)
			b.publish(c.operation+".requested", c.request)
			b.run(program(2), time.Minute, b.published(c.operation+".deferred.x", 1))
			b.purge(c.stream, c.purged)
			b.run(program(c.size), 3*time.Hour, b.ended(c.operation, "x"))
			final := b.finalOf(c.operation, "x")
			fatalIf(t, len(final) != 1, "%d final events an hour after give_up_at, want one\n%s", len(final), b.logs)
			o := b.oracle()
			errorIf(t, o.Enroll.TwiceCount != 0 || o.Mail.TwiceCount != 0,
				"%d enrolled twice, %d served twice", o.Enroll.TwiceCount, o.Mail.TwiceCount)
			switch state := strings.Split(final[0].Subject, ".")[2]; {
			case state == "succeeded" && o.Enroll.Accepted != 1, state == "accepted" &&
				int(o.Mail.Recipients) != number(final[0].Body["recipients"]),
				state == "failed" && (o.Enroll.Accepted != 0 || o.Mail.Recipients != 0):
				t.Errorf("%d enrolled, %d served: %s", o.Enroll.Accepted, o.Mail.Recipients, final[0].Raw)
			}
		})
	}
}

// A list whose bytes are gone while its name is still there cannot be read, now or later:
// its message ends when it is given up, and what was sent is not reported as failed.
func TestAMessageWhoseListCannotBeReadEndsAtGiveUpAt(t *testing.T) {
	full(t)
	for _, c := range []struct {
		name string
		n    int
	}{{"one batch, not sent", 2}, {"three batches, two of them sent", 5}} {
		runInBubble(t, c.name, func(t *testing.T, b *bubble) {
			giveUp := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
			last := about(0, sendBusy)
			if c.n > 2 {
				last = about(2, sendBusy)
			}
			b.fault(last)
			b.publish("mail.send.requested", b.listed("m1", c.n, "give_up_at", giveUp.Format(time.RFC3339)))
			b.run(b.consumer("mail.send"), time.Minute, b.published("mail.send.deferred.m1", 1))
			b.purge("OBJ_lists", "$O.lists.C.>")
			b.box.ClearFaults("*")
			b.run(b.consumer("mail.send"), 2*time.Hour, b.ended("mail.send", "m1"))
			final := b.finalOf("mail.send", "m1")
			fatalIf(t, len(final) != 1 || final[0].at(t).After(giveUp.Add(2*time.Minute)),
				"want one final event by %v: %v\n%s", giveUp, final, b.logs)
			if sent := b.oracle().Mail.Recipients; sent > 0 && strings.Contains(final[0].Subject, ".failed.") {
				t.Errorf("%d were served: %s", sent, final[0].Raw)
			}
			b.queueEmpty("MAIL_REQUESTS")
		})
	}
}
