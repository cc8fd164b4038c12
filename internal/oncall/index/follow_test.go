package index

import (
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"errand/internal/bus"
	"errand/internal/sandbox/devkit/devtest"
	"errand/pkg/messages"
)

func TestAStreamMadeAgainIsReadFromItsFirstMessage(t *testing.T) {
	t.Parallel()
	in := provisioned(t)
	in.store("mandate.enroll.failed.a", body{"reason": "refused"})
	in.store("mandate.enroll.failed.b", body{"reason": "refused"})
	in.store("mail.send.accepted.m", body{})
	x := in.open(t.TempDir())
	stop := in.follow(x)
	in.current(x)
	stop()
	s, err := in.js.Stream(t.Context(), bus.MandateEvents)
	if err != nil {
		t.Fatal(err)
	}
	if err := in.js.DeleteStream(t.Context(), bus.MandateEvents); err != nil {
		t.Fatal(err)
	}
	if _, err := in.js.CreateStream(t.Context(), s.CachedInfo().Config); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"c", "d", "e"} { // more than there were
		in.store("mandate.enroll.failed."+id, body{"reason": "busy"})
	}
	in.follow(x)
	in.current(x)
	if got := in.listed(x, Filter{}); len(got) != 4 || slices.Contains(got, "a failed") {
		t.Errorf("listed: %q", got)
	}
	counts, err := x.Counts(t.Context())
	if sums := Sum(counts, func(k Kind) Kind { return Kind{Reason: k.Reason} }); len(sums) == 0 || sums[0].Count != 3 || err != nil {
		t.Errorf("counted: %+v, %v", counts, err)
	}
}

// A stream that is restored from a backup keeps the time at which it was made, and may have
// other messages with the sequences of those that were lost.
func TestAStreamThatLostMessagesIsReadAgain(t *testing.T) {
	t.Parallel()
	in := provisioned(t)
	in.store("mandate.enroll.failed.a", body{"reason": "refused"})
	x := in.open(t.TempDir())
	stop := in.follow(x)
	in.current(x)
	stop()
	for _, spoil := range []string{"seq = seq + 7", "at = at + 1"} {
		if _, err := x.store.write.Exec("UPDATE position SET " + spoil); err != nil {
			t.Fatal(err)
		}
		if err := x.store.state(&x.lag); err != nil {
			t.Fatal(err)
		}
		if _, err := x.store.write.Exec("DELETE FROM request"); err != nil {
			t.Fatal(err)
		}
		stop := in.follow(x)
		in.current(x)
		in.wantListed(x, Filter{}, "a failed")
		stop()
	}
}

// The people of the shipped configuration may read all that is needed.
func TestPeopleMayFollow(t *testing.T) {
	t.Parallel()
	n := devtest.Configured(t, devtest.Accounts(t, "../../..", func(string) string { return "secret" }))
	connect := func(user string) *nats.Conn {
		nc, err := bus.Connect(bus.Connection{URL: n.URL, User: user, Password: "secret"}, "test", zerolog.Nop())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		return nc
	}
	if err := devtest.Provision(t.Context(), connect("provisioner")); err != nil {
		t.Fatal(err)
	}
	in := installation{t: t, nc: connect("mandate-consumer")}
	var err error
	if in.js, err = jetstream.New(in.nc); err != nil {
		t.Fatal(err)
	}
	in.store("mandate.enroll.failed.a", body{"reason": "refused"})
	in.nc = connect("ann")
	if in.js, err = jetstream.New(in.nc); err != nil {
		t.Fatal(err)
	}
	x := in.open(t.TempDir())
	in.follow(x)
	in.current(x)
	in.wantListed(x, Filter{}, "a failed")
	if got := n.Violations(); len(got) > 0 {
		t.Errorf("it is refused %q", got)
	}
}

func TestAnIndexOutlivesNATS(t *testing.T) {
	t.Parallel()
	n, nc := devtest.Provisioned(t)
	in := installation{t: t, nc: nc}
	var err error
	if in.js, err = jetstream.New(nc); err != nil {
		t.Fatal(err)
	}
	in.store("mandate.enroll.started.a", body{})
	x := in.open(t.TempDir())
	in.follow(x)
	in.current(x)
	n.Stop()
	in.until(func() bool { return x.Lag().Problem != "" && !x.Lag().Since.IsZero() })
	in.wantListed(x, Filter{}, "a started")
	if err := n.Restart(); err != nil {
		t.Fatal(err)
	}
	in.until(func() bool { return x.Lag().Problem == "" })
	in.until(func() bool { return nc.Status() == nats.CONNECTED })
	in.store("mandate.enroll.failed.a", body{})
	in.current(x)
	in.wantListed(x, Filter{}, "a failed")
}

// Histories are followed by the sequence of their events: the servers' clock may jump.
func TestAClockThatIsSetBackChangesNoState(t *testing.T) {
	t.Parallel()
	in := provisioned(t)
	x := in.open(t.TempDir())
	f := &follower{Index: x, nc: in.nc, js: in.js}
	defer f.leave()
	if err := f.enter(); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	event := func(sequence uint64, state messages.State, at time.Time) bus.Message {
		return bus.Message{Subject: messages.Enroll.Subject(state, "a"), Sequence: sequence, Time: at, Data: []byte("{}")}
	}
	for _, page := range [][]bus.Message{
		{event(1, messages.Started, now.Add(24*time.Hour)), event(2, messages.Failed, now)},
		{event(3, messages.Reopened, now.Add(-time.Hour))},
		{event(4, messages.Started, now.Add(-2*time.Hour)), event(5, messages.Succeeded, now.Add(-time.Hour))},
		{event(5, messages.Succeeded, now.Add(-time.Hour)), event(1, messages.Started, now)}, // as a restored stream may have it
	} {
		last := page[len(page)-1]
		if err := f.writer.put(x.gather(page), Position{Stream: bus.MandateEvents, Indexed: last.Sequence, At: last.Time}); err != nil {
			t.Fatal(err)
		}
		if len(page) == 1 {
			in.wantListed(x, Filter{}, "a reopened")
		}
	}
	in.wantListed(x, Filter{}, "a succeeded")
}

func TestTheVersionGrowsWithWhatIsIndexed(t *testing.T) {
	t.Parallel()
	in := provisioned(t)
	x := in.open(t.TempDir())
	in.follow(x)
	in.current(x)
	before := x.Version()
	in.current(x)
	if now := x.Version(); now != before {
		t.Errorf("version %d after %d, with nothing new", now, before)
	}
	in.store("mandate.enroll.started.a", body{})
	in.current(x)
	if now := x.Version(); now == before {
		t.Errorf("version %d as before there was something new", now)
	}
}
