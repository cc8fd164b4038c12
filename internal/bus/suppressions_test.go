package bus_test

import (
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/sandbox/devkit/devtest"
	"errand/internal/sandbox/devkit/inshort"
	"errand/internal/wire/mailkey"
	"errand/pkg/messages"
)

func bounce(k mailkey.Key, at time.Time, code int, enhanced string) bus.Suppression {
	return bus.Suppression{Key: k, At: messages.Time{Time: at}, RequestID: "r1", SMTP: messages.SMTP{Code: code, Enhanced: enhanced}}
}

func reads(t *testing.T, s *bus.Suppressed) *bus.Suppressed {
	t.Helper()
	if err := s.Read(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// What a program has read over time, and what another reads when it starts, say the same, in whatever order it was stored.
func TestTheLaterOfABounceAndADecisionCounts(t *testing.T) {
	_, nc := devtest.Provisioned(t)
	p, err := bus.NewPublisher(nc)
	if err != nil {
		t.Fatal(err)
	}
	running := reads(t, &bus.Suppressed{Conn: nc, For: 30 * 24 * time.Hour})
	before := time.Now().Add(-time.Hour)
	for i, step := range []struct {
		store []bus.Suppression
		want  map[mailkey.Key]string
	}{
		{[]bus.Suppression{bounce(1, before, 550, "5.1.1"), bounce(2, before, 554, ""), bounce(3, before, 0, "5.999.1000"),
			bounce(4, before.Add(-31*24*time.Hour), 550, "5.1.1")},
			map[mailkey.Key]string{1: "bounced: 550 5.1.1", 2: "bounced: 554", 3: "bounced: 5.15.255"}},
		{[]bus.Suppression{{Key: 1, By: "ann", Why: "moved", Removed: true}, {Key: 5, By: "ann", Why: "asked"}},
			map[mailkey.Key]string{2: "bounced: 554", 3: "bounced: 5.15.255", 5: "added by a person"}},
		{[]bus.Suppression{bounce(1, before, 550, "5.1.1")}, // again, as after a crash
			map[mailkey.Key]string{2: "bounced: 554", 3: "bounced: 5.15.255", 5: "added by a person"}},
		{[]bus.Suppression{bounce(1, time.Now().Add(time.Second), 550, "5.1.1"), {Key: 5, By: "ann", Why: "asked", Removed: true}},
			map[mailkey.Key]string{1: "bounced: 550 5.1.1", 2: "bounced: 554", 3: "bounced: 5.15.255"}},
		{[]bus.Suppression{bounce(2, before.Add(-60*24*time.Hour), 554, "")}, // the log is read from its newest row back
			map[mailkey.Key]string{1: "bounced: 550 5.1.1", 2: "bounced: 554", 3: "bounced: 5.15.255"}},
	} {
		if err := p.Suppress(t.Context(), step.store); err != nil {
			t.Fatal(err)
		}
		fresh := &bus.Suppressed{Conn: nc, For: running.For}
		for name, s := range map[string]*bus.Suppressed{"running": running, "fresh": fresh} {
			reads(t, s)
			for k := range mailkey.Key(7) {
				if _, why, found := s.Find(k, 100); why != step.want[k] || found != (why != "") {
					t.Errorf("step %d, %s: key %d is %q, want %q", i, name, k, why, step.want[k])
				}
			}
		}
	}
}

// Without the stream nothing new is known, and what was known stays; another stream of the name is read from its beginning.
func TestWhatIsSuppressedStaysSoWithoutTheStream(t *testing.T) {
	_, nc := devtest.Provisioned(t)
	js := opened(t, nc)
	p, err := bus.NewPublisher(nc)
	if err != nil {
		t.Fatal(err)
	}
	s := &bus.Suppressed{Conn: nc, For: time.Hour}
	if s.Note() == "" {
		t.Error("nothing was read, and it does not say so")
	}
	for k := range mailkey.Key(3) {
		if err := p.Suppress(t.Context(), []bus.Suppression{bounce(k+1, time.Now(), 550, "")}); err != nil {
			t.Fatal(err)
		}
	}
	if note := reads(t, s).Note(); note != "" {
		t.Error(note)
	}
	if err := js.DeleteStream(t.Context(), bus.Suppressions); err != nil {
		t.Fatal(err)
	}
	if err := s.Read(t.Context()); err == nil {
		t.Error("there is no stream, and no error")
	}
	apply(t, js, bus.Limits{}, false)
	if p, err = bus.NewPublisher(nc); err != nil { // the one before expects higher sequences
		t.Fatal(err)
	}
	if err := p.Suppress(t.Context(), []bus.Suppression{bounce(9, time.Now(), 550, "")}); err != nil {
		t.Fatal(err)
	}
	reads(t, s)
	for _, k := range []mailkey.Key{1, 2, 3, 9} {
		if _, _, found := s.Find(k); !found {
			t.Errorf("key %d is not suppressed", k)
		}
	}
}

const spread = mailkey.Key(0x9e3779b97f4a7c15)

// One of a million addresses takes less than 64 bytes.
func TestAMillionSuppressedAddressesTakeLittleMemory(t *testing.T) {
	n := inshort.Choose(t, 200_000, 50_000) // 24 to 38 bytes each, of a million too
	_, nc := devtest.Provisioned(t)
	p, err := bus.NewPublisher(nc)
	if err != nil {
		t.Fatal(err)
	}
	all := make([]bus.Suppression, 10_000)
	for first := 0; first < n; first += len(all) {
		for i := range all {
			all[i] = bounce(mailkey.Key(first+i+1)*spread, time.Now(), 550, "5.1.1")
		}
		if err := p.Suppress(t.Context(), all); err != nil {
			t.Fatal(err)
		}
	}
	_, stream := streamOf(t, nc, bus.Suppressions)
	t.Logf("%d have %d bytes each in the stream", n, stream.CachedInfo().State.Bytes/uint64(n))
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	s, began := &bus.Suppressed{Conn: nc, For: time.Hour}, time.Now()
	reads(t, s)
	took := time.Since(began)
	runtime.GC()
	runtime.ReadMemStats(&after)
	each := (float64(after.HeapAlloc) - float64(before.HeapAlloc)) / float64(n) // the server is in this process, and may have freed some
	t.Logf("%d addresses take %.0f bytes each, read in %v", n, each, took)
	if each > 64 {
		t.Errorf("an address takes %.0f bytes", each)
	}
	for k := range mailkey.Key(n) {
		if _, _, found := s.Find((k + 1) * spread); !found {
			t.Fatalf("key %d is not found", k)
		}
	}
}

// The last message may be erased while it is read, and another one of the person, too.
func TestErasedSuppressionsKeepNobodyWaiting(t *testing.T) {
	_, nc := devtest.Provisioned(t)
	p, err := bus.NewPublisher(nc)
	if err != nil {
		t.Fatal(err)
	}
	s := &bus.Suppressed{Conn: nc, For: time.Hour}
	for k := range mailkey.Key(20) {
		if err := p.Suppress(t.Context(), []bus.Suppression{bounce(k+1, time.Now(), 550, ""), {Key: k + 1, By: "ann"}}); err != nil {
			t.Fatal(err)
		}
		var erasing sync.WaitGroup
		erasing.Go(func() {
			_, stream := streamOf(t, nc, bus.Suppressions)
			if err := stream.Purge(t.Context(), jetstream.WithPurgeSubject(bus.SuppressionFilter(k+1))); err != nil {
				t.Error(err)
			}
		})
		reads(t, s)
		erasing.Wait()
		reads(t, s)
	}
	if _, _, found := reads(t, &bus.Suppressed{Conn: nc, For: time.Hour}).Find(1); found {
		t.Error("one who was erased is known after a restart")
	}
}
