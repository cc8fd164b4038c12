package sink_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/lists/sink"
	"errand/internal/lists/sweep"
	"errand/internal/sandbox/devkit/devtest"
)

// keepFor changes how long the stream keeps its events, and returns what it has.
func keepFor(t *testing.T, nc *nats.Conn, age time.Duration) jetstream.StreamState {
	t.Helper()
	js, _ := jetstream.New(nc)
	s, err := js.Stream(t.Context(), bus.MailDeliveries)
	if err != nil {
		t.Fatal(err)
	}
	config := s.CachedInfo().Config
	config.MaxAge, config.Duplicates = age, 100*time.Millisecond // the least there is
	if s, err = js.UpdateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	return s.CachedInfo().State
}

// The server's clock for what is too old is the real one, also in a bubble; so the test
// changes how long events are kept, and waits until they are gone.
func TestKeptIsWithinTheRetentionOnceAnEventIsGone(t *testing.T) {
	n, nc := devtest.Provisioned(t)
	d := newSink(t, nc)
	keptIs(t, d, "of a stream that is new", time.Time{})
	learn(t, d)
	store(t, d, rows(0, 3))
	keptIs(t, d, "of a stream that has all that was stored", time.Time{})

	state := keepFor(t, nc, time.Second)
	for row := 3; state.FirstSeq <= 1 || state.Msgs == 0; row++ {
		keepFor(t, nc, time.Second)
		<-time.After(20 * time.Millisecond)
		learn(t, d) // the message on which it leads is dropped, too
		store(t, d, rows(row, row+1))
		state = keepFor(t, nc, 600*time.Hour)
	}
	keptSince(t, d, "of a stream that keeps 600 hours", 590*time.Hour)
	keepFor(t, nc, 20*time.Hour)
	keptSince(t, d, "of a stream that keeps 20 hours", 19*time.Hour) // clocks differ whatever is kept
	keepFor(t, nc, 0)
	keptIs(t, d, "of a stream that keeps everything", time.Time{})

	// What was dropped before the stream kept messages for longer was published up to the mark.
	first := keepFor(t, nc, 600*time.Hour).FirstTime
	for what, through := range map[string]time.Time{"long ago": first.Add(-2 * time.Hour), "now": first.Add(2 * time.Hour)} {
		learn(t, d)
		if err := d.Mark(t.Context(), sweep.Mark{At: time.Now(), CompleteThrough: through}); err != nil {
			t.Fatal(err)
		}
		want := first.Add(time.Hour)
		if through.Before(want) {
			want = through
		}
		for _, age := range []time.Duration{600 * time.Hour, 0} {
			keepFor(t, nc, age)
			keptIs(t, d, "of a stream that kept less, marked "+what, want)
		}
	}

	last := keepFor(t, nc, time.Second).LastTime
	for state.Msgs > 0 {
		<-time.After(20 * time.Millisecond)
		state = keepFor(t, nc, time.Second)
	}
	keptIs(t, d, "of a stream that is empty again", last.Add(time.Minute))
	if err := n.Restart(); err != nil {
		t.Fatal(err)
	}
	for nc.Stats().Reconnects == 0 {
		<-time.After(10 * time.Millisecond)
	}
	keptIs(t, d, "of an empty stream after a restart of the server", last.Add(time.Minute))

	// The rows that were made meanwhile are not published yet when a poller leads again, or another one.
	keepFor(t, nc, 600*time.Hour)
	keptSince(t, d, "of a stream that was emptied by hand", 590*time.Hour)
	learn(t, d)
	keptSince(t, d, "of a stream that a poller has just begun again", 590*time.Hour)
}

func TestKeptOfNoStreamIsAnError(t *testing.T) {
	_, nc := devtest.Provisioned(t)
	js, _ := jetstream.New(nc)
	if err := js.DeleteStream(t.Context(), bus.MailDeliveries); err != nil {
		t.Fatal(err)
	}
	if since, err := newSink(t, nc).Kept(t.Context()); err == nil {
		t.Errorf("Kept = %v, want an error", since)
	}
}

func keptIs(t *testing.T, d *sink.Store, what string, want time.Time) {
	t.Helper()
	if got, err := d.Kept(t.Context()); err != nil || !got.Truncate(time.Millisecond).Equal(want.Truncate(time.Millisecond)) {
		t.Errorf("Kept %s = %v, %v, want %v", what, got, err, want)
	}
}

// keptSince allows for the time that Kept takes.
func keptSince(t *testing.T, d *sink.Store, what string, ago time.Duration) {
	t.Helper()
	began := time.Now()
	got, err := d.Kept(t.Context())
	if err != nil || got.Before(began.Add(-ago)) || got.After(time.Now().Add(-ago)) {
		t.Errorf("Kept %s = %v, %v, want %v ago", what, got, err, ago)
	}
}
