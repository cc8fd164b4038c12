package inspect

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/sandbox/devkit/devtest"
	"errand/pkg/messages"
)

// installation is a server with the streams, and what a test stores in them.
type installation struct {
	Reader
	t  *testing.T
	js jetstream.JetStream
}

func provisioned(t *testing.T) installation {
	t.Helper()
	_, nc := devtest.Provisioned(t)
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(1000))
	if err != nil {
		t.Fatal(err)
	}
	return installation{Reader{Conn: nc, JS: js}, t, js}
}

// store stores a message, and waits until it is.
func (in installation) store(subject string, body any, header ...string) {
	in.t.Helper()
	if _, err := in.js.PublishMsg(in.t.Context(), devtest.Message(in.t, subject, body, header...)); err != nil {
		in.t.Fatal(err)
	}
}

// take takes a request from its queue, as a program does.
func (in installation) take(from bus.Queue) {
	in.t.Helper()
	c, err := in.js.Consumer(in.t.Context(), from.Stream, from.Name)
	if err == nil {
		_, err = c.Next(jetstream.FetchMaxWait(time.Minute))
	}
	if err != nil {
		in.t.Fatal(err)
	}
}

type body = map[string]any

// ids of what was found, in order.
func ids[T any](list []T, id func(T) string) (names []string) {
	for _, one := range list {
		names = append(names, id(one))
	}
	return names
}

func (in installation) list(q Query) []string {
	in.t.Helper()
	rows, err := in.List(in.t.Context(), q, time.Now())
	if err != nil {
		in.t.Fatal(err)
	}
	return ids(rows, func(r Row) string { return r.RequestID + " " + string(r.State) })
}

func TestARequestIsListedInTheStateThatItIsIn(t *testing.T) {
	t.Parallel()
	in := provisioned(t)
	for _, e := range []struct {
		subject string
		body    body
	}{
		{"mandate.enroll.failed.a", body{"reason": "refused", "http_status": 422}},
		{"mandate.enroll.failed.corrected", body{"reason": "refused"}},
		{"mandate.enroll.uncertain.b", body{"reason": "no_answer"}},
		{"mandate.enroll.uncertain.cleared", body{"reason": "no_answer"}},
		{"mandate.enroll.reopened.corrected", body{"by": "correction"}},
		{"mandate.enroll.started.corrected", body{}},
		{"mandate.enroll.succeeded.corrected", body{}},
		{"mandate.enroll.resolved.cleared", body{"outcome": "failed"}},
		{"mail.send.failed.c", body{"reason": "invalid_request"}},
		{"mail.send.partial.d", body{}},
		{"mail.account.reported.e", body{}},
		{"mandate.transactions.listed.f", body{}},
		{"mandate.enroll.reopened.again", body{}}, // its first failure is gone already
		{"mandate.enroll.failed.again", body{"reason": "busy"}},
	} {
		in.store(e.subject, e.body)
	}
	in.store("mandate.enroll.requested", body{"request_id": "later"})
	in.take(bus.EnrollQueue)
	in.store("mandate.enroll.uncertain.redriven", body{"reason": "no_answer"})
	in.store("mandate.enroll.reopened.redriven", body{"by": "ann"})
	in.store("mandate.enroll.requested", body{"request_id": "waits"})
	in.store("mandate.enroll.requested", body{"request_id": "redriven"})
	in.store("mandate.enroll.deferred.later", body{"reason": "busy"})
	for _, c := range []struct {
		q    Query
		want []string
	}{
		{Query{States: []messages.State{messages.Failed}}, []string{"again failed", "c failed", "a failed"}},
		{Query{States: []messages.State{messages.Failed, messages.Uncertain}, Operations: []messages.Operation{messages.Enroll}},
			[]string{"again failed", "b uncertain", "a failed"}},
		{Query{Reasons: []messages.Reason{messages.ReasonRefused}}, []string{"a failed"}},
		{Query{Reasons: []messages.Reason{messages.ReasonBusy}}, []string{"later deferred", "again failed"}},
		{Query{Limit: 2}, []string{"later deferred", "waits queued"}}, // the newest two
		{Query{States: []messages.State{messages.Reopened}}, []string{"redriven reopened"}},
		{Query{Limit: 2, States: []messages.State{messages.Failed}}, []string{"again failed", "c failed"}},
		{Query{States: []messages.State{Queued}}, []string{"waits queued"}},
		{Query{States: []messages.State{messages.Deferred, messages.Resolved}}, []string{"later deferred", "cleared resolved"}},
		{Query{Since: time.Now().Add(time.Hour)}, nil},
	} {
		if diff := cmp.Diff(c.want, in.list(c.q)); diff != "" {
			t.Errorf("%+v: %s", c.q, diff)
		}
	}
	rows, err := in.List(t.Context(), Query{States: []messages.State{messages.Failed}}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	groups := ids(ByReason(rows), func(g Group) string { return fmt.Sprint(g.Count, " ", g.Operation, " ", g.Reason) })
	if want := []string{"1 mandate.enroll busy", "1 mail.send invalid_request", "1 mandate.enroll refused"}; !slices.Equal(groups, want) {
		t.Errorf("by reason %q, want %q", groups, want)
	}
}

func TestStuckSaysWhyEachRequestWaits(t *testing.T) {
	t.Parallel()
	in := provisioned(t)
	for _, id := range []string{"untaken", "deferred", "called", "orphaned", "taken", "done"} {
		in.store("mail.send.requested", body{"request_id": id})
	}
	in.store("mail.send.requested", "no JSON")
	in.store("mail.send.requested", body{"content": "x"}, nats.MsgIdHdr, "by-its-header")
	in.store("mail.send.deferred.deferred", body{"reason": "busy", "http_status": 503, "message": "Service Unavailable.",
		"not_before": time.Now().Add(time.Hour)})
	in.store("mail.send.started.called", body{"deadline": time.Now().Add(time.Hour)})
	in.store("mail.send.started.orphaned", body{"deadline": time.Now().Add(-time.Hour)})
	in.store("mail.send.accepted.done", body{})
	in.store("mail.send.requested", body{"request_id": "deferred"}, nats.MsgIdHdr, "retry.mail.send.deferred.1")
	stuck := func(programs ...bus.ProgramStatus) (list []string) {
		in.t.Helper()
		now := time.Now()
		q, err := in.Queue(t.Context(), bus.SendQueue, now)
		if err != nil {
			t.Fatal(err)
		}
		open, err := in.Opens(t.Context(), q, 100, now)
		if err != nil {
			t.Fatal(err)
		}
		return ids(open, func(o Open) string {
			o.Why = why(&o, q, programs, now)
			return strings.TrimSuffix(fmt.Sprint(o.RequestID, ": ", o.Why, ", ", o.Place), ", 0")
		})
	}
	busy, called, orphaned := "deferred: busy 503, Service Unavailable", "called: a call is under way",
		"orphaned: overdue; a worker finds out what was done"
	none := "no mail-consumer answers"
	want := []string{"untaken: " + none + ", 1", busy, called, orphaned, "taken: " + none + ", 5", "MAIL_REQUESTS-7: " + none + ", 7",
		"by-its-header: " + none + ", 8"}
	if diff := cmp.Diff(want, stuck()); diff != "" {
		t.Errorf("while no program runs: %s", diff)
	}
	turn := "waits its turn"
	want = []string{"untaken: " + turn + ", 1", busy, called, orphaned, "taken: " + turn + ", 5", "MAIL_REQUESTS-7: " + turn + ", 7",
		"by-its-header: " + turn + ", 8"}
	if diff := cmp.Diff(want, stuck(bus.ProgramStatus{Program: "mail-consumer"})); diff != "" {
		t.Errorf("while one runs: %s", diff)
	}
	if got := stuck(bus.ProgramStatus{Program: "mail-consumer", Faults: []string{"a check failed"}})[0]; got !=
		"untaken: mail-consumer is not ready: a check failed, 1" {
		t.Errorf("while none is ready: %q", got)
	}
	held := bus.ProgramStatus{Program: "mail-consumer", Holds: []bus.Hold{{Operation: messages.Account, Why: "another's"},
		{Operation: messages.Send, Why: "it is down"}}}
	if got := stuck(held)[1]; got != "deferred: held: it is down" {
		t.Errorf("of a deferred one under a hold: %q", got)
	}
	full := bus.ProgramStatus{Program: "mail-consumer", NotStored: map[string]string{bus.MailEvents: "it is full"}, Holds: held.Holds}
	for _, got := range stuck(full) { // of live workers' requests too
		if !strings.Contains(got, ": NATS does not store in MAIL_EVENTS: it is full") {
			t.Errorf("while no event is stored: %q", got)
		}
	}
	for _, other := range []bus.ProgramStatus{{Program: "log-poller", NotStored: full.NotStored},
		{Program: "mail-consumer", NotStored: map[string]string{bus.DeadLetters: "it is full", bus.MailDeliveries: "it is full"}}} {
		if got := stuck(other)[3]; got != orphaned {
			t.Errorf("while %v: %q", other, got)
		}
	}
	if _, err := in.js.PauseConsumer(t.Context(), bus.MailRequests, "mail-send", time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if got := stuck()[0]; got != "untaken: its queue is paused, 1" {
		t.Errorf("while it is paused: %q", got)
	}
	if _, err := in.js.ResumeConsumer(t.Context(), bus.MailRequests, "mail-send"); err != nil {
		t.Fatal(err)
	}
	in.take(bus.SendQueue)
	if got := stuck(bus.ProgramStatus{Program: "mail-consumer"}); got[0] != "untaken: a program had it and stored nothing yet" ||
		got[4] != "taken: "+turn+", 4" {
		t.Errorf("once the first was taken: %q", got)
	}
}
