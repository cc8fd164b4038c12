package sink_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/lists/sink"
	"errand/internal/lists/sweep"
	"errand/internal/sandbox/devkit/devtest"
)

const turn = "mail.log.turn"

// turns is the number of messages by which pollers took the leadership.
func turns(t *testing.T, nc *nats.Conn) uint64 {
	t.Helper()
	js, _ := jetstream.New(nc)
	s, err := js.Stream(t.Context(), bus.MailDeliveries)
	if err != nil {
		t.Fatal(err)
	}
	info, err := s.Info(t.Context(), jetstream.WithSubjectFilter(turn))
	if err != nil {
		t.Fatal(err)
	}
	return info.State.Subjects[turn]
}

// ledIs fails unless d is answered so about a leader, in time.
func ledIs(t *testing.T, d *sink.Store, want bool, most time.Duration) {
	t.Helper()
	began := time.Now()
	if led, err := d.Led(t.Context()); led != want || err != nil {
		t.Errorf("Led = %t, %v, want %t", led, err, want)
	}
	if took := time.Since(began); took > most {
		t.Errorf("Led took %v, want %v", took, most)
	}
}

func TestAStandbyKnowsWhetherAnybodyLeads(t *testing.T) {
	n, nc := devtest.Provisioned(t)
	connect := func() *nats.Conn {
		t.Helper()
		c, err := nats.Connect(n.Server.ClientURL())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return c
	}
	standby := newSink(t, nc)
	ledIs(t, standby, false, time.Second)
	ownConn := connect()
	leader := newSink(t, ownConn)
	learn(t, leader)
	ledIs(t, standby, true, time.Second)
	ledIs(t, leader, false, time.Second)
	leader.Resign() // the server may not know that yet
	ledIs(t, standby, false, 5*time.Second)
	store(t, leader, rows(0, 1))
	if err := leader.Lead(t.Context()); err != nil {
		t.Fatal(err)
	}
	ledIs(t, standby, true, time.Second)
	ownConn.Close() // it is killed; the server may not know that yet
	ledIs(t, standby, false, 5*time.Second)

	stopped := connect() // it gets the question, and does nothing
	if _, err := stopped.SubscribeSync("errand.leader.mail.log"); err != nil {
		t.Fatal(err)
	}
	if err := stopped.Flush(); err != nil {
		t.Fatal(err)
	}
	ledIs(t, standby, false, 5*time.Second)
	if got := turns(t, nc); got != 2 {
		t.Errorf("%d turns are stored, want 2", got)
	}
	cut := connect()
	alone := newSink(t, cut)
	cut.Close()
	if led, err := alone.Led(t.Context()); err == nil {
		t.Errorf("Led of one without a connection = %t, want an error", led)
	}
}

// A standby knows how far the list was read when the leader is gone.
func TestAStandbyKnowsWhenTheLeaderReadLast(t *testing.T) {
	_, nc := devtest.Provisioned(t)
	leader, standby := newSink(t, nc), newSink(t, nc)
	leader.ReadSince, standby.ReadSince = new(atomic.Int64), new(atomic.Int64)
	learn(t, leader)
	for _, read := range []int64{0, 4711, 4712} {
		leader.ReadSince.Store(read)
		ledIs(t, standby, true, time.Second)
		if got := standby.ReadSince.Load(); got != read {
			t.Errorf("the leader read at %d, the standby says %d", read, got)
		}
	}
}

// One that lost the leadership writes nothing and is a standby; it sees that without writing, too.
func TestOneThatLostTheLeadershipIsAStandby(t *testing.T) {
	_, nc := devtest.Provisioned(t)
	first, second := newSink(t, nc), newSink(t, nc)
	learn(t, first)
	learn(t, first) // again, as after a failed write
	if err := second.Lead(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := first.Lead(t.Context()); !errors.Is(err, sweep.ErrLed) {
		t.Errorf("Lead of one that lost the leadership: %v, want %v", err, sweep.ErrLed)
	}
	if got := turns(t, nc); got != 3 {
		t.Errorf("%d turns are stored, want 3", got)
	}
	ledIs(t, first, true, time.Second)
	if err := first.Lead(t.Context()); err != nil { // on purpose
		t.Fatal(err)
	}
	ledIs(t, second, true, time.Second) // it sees that it lost the leadership, and then asks
	ledIs(t, second, true, time.Second)
	first.Resign()
	ledIs(t, second, false, 5*time.Second)
}

// The message of the turn is as old as the takeover: it ages out while its poller leads.
func TestATurnThatHasAgedOutIsNotLost(t *testing.T) {
	_, nc := devtest.Provisioned(t)
	d := newSink(t, nc)
	learn(t, d)
	store(t, d, rows(0, 3))
	js, _ := jetstream.New(nc)
	s, err := js.Stream(t.Context(), bus.MailDeliveries)
	if err == nil {
		err = s.Purge(t.Context(), jetstream.WithPurgeSubject(turn))
	}
	if err != nil {
		t.Fatal(err)
	}
	ledIs(t, d, false, time.Second)
	if _, err := publish(d, rows(3, 4)); !errors.Is(err, sweep.ErrBehind) {
		t.Errorf("Publish without a turn: %v, want %v", err, sweep.ErrBehind)
	}
	if err := d.Lead(t.Context()); err != nil {
		t.Fatal(err)
	}
	seen := map[sweep.ID]int{}
	if err := follow(seen, d); err != nil || len(seen) != 3 {
		t.Errorf("%d rows are learned, want its own 3: %v", len(seen), err)
	}
	store(t, d, rows(3, 4))
}

// A standby follows what the leader publishes, nothing twice, and learns only the rest when it takes over.
func TestAStandbyFollows(t *testing.T) {
	_, nc := devtest.Provisioned(t)
	leader, standby := newSink(t, nc), newSink(t, nc)
	seen := map[sweep.ID]int{}
	follows := func(want int) {
		t.Helper()
		began := time.Now()
		if err := follow(seen, standby); err != nil || len(seen) != want {
			t.Errorf("%d rows are known, want %d: %v", len(seen), want, err)
		}
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("it took %v", took)
		}
	}
	follows(0)
	learn(t, leader)
	follows(0)
	store(t, leader, rows(0, 300))
	if err := leader.Mark(t.Context(), sweep.Mark{At: time.Now()}); err != nil {
		t.Fatal(err)
	}
	follows(300)
	follows(300)
	store(t, leader, rows(300, 400))
	follows(400)
	if _, err := publish(standby, rows(400, 401)); !errors.Is(err, sweep.ErrBehind) {
		t.Errorf("a standby publishes: %v", err)
	}
	store(t, leader, rows(400, 410))
	if err := standby.Lead(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := publish(standby, rows(410, 411)); !errors.Is(err, sweep.ErrBehind) {
		t.Errorf("one that has not learned publishes: %v", err)
	}
	follows(410)
	store(t, standby, rows(410, 411))
	for id, n := range seen {
		if n > 1 {
			t.Fatalf("%x was given %d times", id, n)
		}
	}
	once(t, storedIDs(t, nc), 411)
}

// One that resigned follows the one that leads instead, as every standby.
func TestOneThatResignedFollowsTheNext(t *testing.T) {
	_, nc := devtest.Provisioned(t)
	first, second := newSink(t, nc), newSink(t, nc)
	learn(t, first)
	store(t, first, rows(0, 3))
	first.Resign()
	learn(t, second)
	store(t, second, rows(3, 9))
	ledIs(t, first, true, time.Second)
	all := map[sweep.ID]int{}
	for range 2 {
		if err := follow(all, first); err != nil {
			t.Fatal(err)
		}
	}
	if len(all) < 6 {
		t.Errorf("the standby learned %d events of the 6 that were stored since", len(all))
	}
}

// What a poller could not store is for the one that leads after it: a standby has no fault, however seldom it tries.
func TestAStandbyHasNoFaultOfAStream(t *testing.T) {
	_, nc := devtest.Provisioned(t)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	standby, p := newSinkAndPublisher(t, nc)
	p.TriesEvery(time.Hour)
	leader := newSink(t, nc)
	s, err := js.Stream(t.Context(), bus.MailDeliveries)
	if err != nil {
		t.Fatal(err)
	}
	room := s.CachedInfo().Config
	full := room
	full.MaxBytes = 1
	for _, config := range []jetstream.StreamConfig{full, room} {
		if _, err := js.UpdateStream(t.Context(), config); err != nil {
			t.Fatal(err)
		}
		if config.MaxBytes == 1 && (standby.Lead(t.Context()) == nil || p.Fault() == "") {
			t.Fatalf("it leads in a full stream, or says %q", p.Fault())
		}
		ledIs(t, standby, false, time.Second)
	}
	if p.Fault() == "" {
		t.Error("nobody leads, and what it could not store is forgotten")
	}
	learn(t, leader)
	ledIs(t, standby, true, time.Second)
	if why := p.Fault(); why != "" {
		t.Errorf("another one leads, and it says %q", why)
	}
}
