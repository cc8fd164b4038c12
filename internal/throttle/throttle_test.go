package throttle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"errand/internal/retry"
)

// servers keep leases as a stream does, by their clock.
type servers struct {
	mu      sync.Mutex
	entries []Entry
	ahead   time.Duration // of their clock
	way     time.Duration // to them, or back
}

// line is one replica's way to the servers.
type line struct {
	*servers
	mu    sync.Mutex
	cut   error         // what everything fails with
	still time.Duration // for how long the process stands still when its lease was stored
	woke  time.Time     // when it last went on after that
}

func (l *line) state() (still time.Duration, cut error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.still, l.cut
}

func (l *line) set(cut error, still time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut, l.still = cut, still
}

func (l *line) Last(context.Context) (Entry, error) {
	time.Sleep(2 * l.way)
	if _, cut := l.state(); cut != nil {
		return Entry{}, cut
	}
	l.servers.mu.Lock()
	defer l.servers.mu.Unlock()
	if len(l.entries) == 0 {
		return Entry{}, nil
	}
	return l.entries[len(l.entries)-1], nil
}

func (l *line) Store(_ context.Context, body []byte, last uint64) (Entry, error) {
	time.Sleep(l.way)
	still, cut := l.state()
	if cut != nil {
		return Entry{}, cut
	}
	l.servers.mu.Lock()
	e := Entry{Sequence: uint64(len(l.entries) + 1), At: time.Now().Round(0).Add(l.ahead), Body: body}
	conflict := last != e.Sequence-1
	if !conflict {
		l.entries = append(l.entries, e)
	}
	l.servers.mu.Unlock()
	time.Sleep(l.way)
	e.Known = time.Now()
	time.Sleep(2 * l.way)
	if still > 0 {
		time.Sleep(still)
		l.mu.Lock()
		l.woke = time.Now()
		l.mu.Unlock()
	}
	if conflict {
		return Entry{}, ErrConflict
	}
	return e, nil
}

func (s *servers) stored() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.entries)
}

// fleet is replicas of one program, and the calls that they made.
type fleet struct {
	t         *testing.T
	servers   servers
	perSecond float64
	began     time.Time
	all       sync.WaitGroup

	mu    sync.Mutex
	calls []time.Duration // since began
}

// replica is one that always has callers who wait.
type replica struct {
	*line
	*Fleet
	kill context.CancelFunc
}

func inFleet(t *testing.T, perSecond float64, f func(*fleet)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		fl := &fleet{t: t, perSecond: perSecond, began: time.Now()}
		fl.servers.way = time.Millisecond
		f(fl)
		fl.all.Wait()
	})
}

// start starts a replica with so many callers, each of which calls again and again.
func (f *fleet) start(callers int) *replica {
	l := &line{servers: &f.servers}
	ctx, kill := context.WithCancel(f.t.Context())
	r := &replica{line: l, Fleet: NewFleet(f.perSecond, l, zerolog.Nop()), kill: kill}
	f.all.Go(func() { r.Run(ctx) })
	limit := &Limit{Fleet: r.Fleet, Waited: func(time.Duration) {}}
	for range callers {
		f.all.Go(func() {
			for limit.Wait(ctx) == nil {
				f.mu.Lock()
				f.calls = append(f.calls, time.Since(f.began))
				f.mu.Unlock()
			}
		})
	}
	return r
}

// between counts the calls from one time to another.
func (f *fleet) between(from, to time.Duration) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, at := range f.calls {
		if at >= from && at < to {
			n++
		}
	}
	return n
}

// burst is what may come on top of the limit in any window.
func (f *fleet) burst() int { return 1 + int(f.perSecond*retry.RateSpare.Seconds()) }

// wantWithin fails the test when any window has more calls than the limit and its burst.
func (f *fleet) wantWithin(window time.Duration) {
	f.t.Helper()
	f.mu.Lock()
	calls := slices.Sorted(slices.Values(f.calls))
	f.mu.Unlock()
	most := int(f.perSecond*window.Seconds()) + f.burst()
	for i, first := range calls {
		end, _ := slices.BinarySearch(calls, first+window)
		if end-i > most {
			f.t.Fatalf("%d calls in %v from %v on, want at most %d", end-i, window, first, most)
		}
	}
}

// wantUsed fails the test when less than 95 % of the limit was used, or more than 105 %.
func (f *fleet) wantUsed(from, to time.Duration) {
	f.t.Helper()
	want := f.perSecond * (to - from).Seconds()
	if got := float64(f.between(from, to)); got < 0.95*want || got > 1.05*want {
		f.t.Errorf("%v calls from %v to %v, want %v within 5 %%", got, from, to, want)
	}
}

func (f *fleet) until(at time.Duration) { time.Sleep(time.Until(f.began.Add(at))) }

func TestAFleetKeepsItsLimitAndUsesItWhenOneIsKilled(t *testing.T) {
	for _, perSecond := range []float64{0.5, 3, 50, 2000} {
		t.Run(fmt.Sprint(perSecond), func(t *testing.T) {
			inFleet(t, perSecond, func(f *fleet) {
				scale := max(1, time.Duration(20/perSecond))
				var all []*replica
				for range 4 {
					all = append(all, f.start(32))
				}
				f.until(10 * scale * time.Second)
				all[0].kill()
				var before []float64
				for _, r := range all[1:] {
					before = append(before, r.Leased())
				}
				f.until(30 * scale * time.Second)
				for i, r := range all[1:] {
					if share := (r.Leased() - before[i]) / (perSecond * 20 * float64(scale)); share < 0.2 || share > 0.5 {
						t.Errorf("one of three has a share of %v", share)
					}
					r.kill()
				}
				f.wantUsed(scale*time.Second, 10*scale*time.Second)
				f.wantUsed(10*scale*time.Second, 30*scale*time.Second)
				f.wantWithin(scale * time.Second)
				f.wantWithin(5 * scale * time.Second)
			})
		})
	}
}

// Leases become larger where it takes long to get one, so more is lost with one who is killed.
func TestASlowNATSCostsNoCalls(t *testing.T) {
	for _, way := range []time.Duration{10 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond} {
		inFleet(t, 50, func(f *fleet) {
			f.servers.way = way
			var all []*replica
			for range 4 {
				all = append(all, f.start(32))
			}
			f.until(30 * time.Second)
			all[0].kill()
			f.until(60 * time.Second)
			for _, r := range all[1:] {
				r.kill()
			}
			f.t.Logf("%v: %d and %d calls, %d leases", way, f.between(5*time.Second, 30*time.Second),
				f.between(40*time.Second, time.Minute), f.servers.stored())
			f.wantUsed(5*time.Second, 30*time.Second)
			const taken = 2 * 50 // calls of the two leases that one has at most
			if n := f.between(30*time.Second, 40*time.Second); n < 500-25-taken {
				t.Errorf("%d calls in the ten seconds after one was killed, want 500 but for %d it had leased, within 5 %%", n, taken)
			}
			f.wantUsed(40*time.Second, time.Minute)
			f.wantWithin(time.Second)
		})
	}
}

// However many calls there are, leases are few; and an idle replica asks for nothing.
func TestCallsDoNotCostALeaseEach(t *testing.T) {
	inFleet(t, 1000, func(f *fleet) {
		busy, slow, idle := f.start(64), f.start(0), f.start(0)
		limit := &Limit{Fleet: slow.Fleet, Waited: func(time.Duration) {}}
		f.until(5 * time.Second)
		before := f.servers.stored()
		f.until(15 * time.Second)
		if n := f.servers.stored() - before; n > 160 { // of at most 64 calls, since as many wait
			t.Errorf("%d leases in ten seconds", n)
		}
		busy.kill()
		f.until(20 * time.Second)
		before = f.servers.stored()
		for range 500 { // 50 a second, one after the other
			if err := limit.Wait(f.t.Context()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(20 * time.Millisecond)
		}
		if n := f.servers.stored() - before; n > 60 {
			t.Errorf("%d leases for 500 calls", n)
		}
		before = f.servers.stored()
		f.until(time.Hour)
		if n := f.servers.stored() - before; n > 0 {
			t.Errorf("%d leases of idle replicas", n)
		}
		slow.kill()
		idle.kill()
	})
}

// One who cannot reach NATS uses what it has leased and then waits, and says so; the others
// use the whole limit.
func TestAReplicaWithoutNATSWaitsAndLeavesTheLimitToTheOthers(t *testing.T) {
	inFleet(t, 50, func(f *fleet) {
		alone, other := f.start(16), f.start(16)
		f.until(5 * time.Second)
		alone.set(errors.New("no answer"), 0)
		f.until(6 * time.Second)
		leased := alone.Leased()
		f.until(15 * time.Second)
		if alone.Fault() == "" || other.Fault() != "" {
			t.Errorf("without NATS: %q; with it: %q", alone.Fault(), other.Fault())
		}
		if alone.Leased() != leased {
			t.Error("calls were leased without NATS")
		}
		other.kill()
		f.until(16 * time.Second)
		if n := f.between(15*time.Second+retry.RateSpare, 16*time.Second); n > 0 {
			t.Errorf("%d calls of one who has leased none", n)
		}
		alone.set(nil, 0)
		f.until(30 * time.Second)
		if why := alone.Fault(); why != "" {
			t.Errorf("with NATS again: %q", why)
		}
		alone.kill()
		f.wantUsed(6*time.Second, 15*time.Second)
		f.wantUsed(20*time.Second, 30*time.Second)
		f.wantWithin(time.Second)
	})
}

// A process that stood still between leasing and calling finds its lease worthless, and does
// not call before it has another.
func TestALeaseIsNotUsedByAProcessThatStoodStill(t *testing.T) {
	inFleet(t, 50, func(f *fleet) {
		r := f.start(16)
		f.until(5 * time.Second)
		r.set(nil, time.Minute)
		f.until(30 * time.Second)
		r.set(nil, 0)
		f.until(2 * time.Minute)
		r.kill()
		synctest.Wait()
		woke := r.woke.Sub(f.began) // nothing runs now
		// Asking for the last lease and storing one takes six.
		if n := f.between(10*time.Second, woke+5*f.servers.way); woke < time.Minute || n > 0 {
			t.Errorf("%d calls from ten seconds on, until it had a lease again at %v", n, woke+6*f.servers.way)
		}
		f.wantUsed(70*time.Second, 2*time.Minute)
		f.wantWithin(time.Second)
	})
}

// The servers' clock alone counts, and where another server leads it may differ.
func TestClocksMayDiffer(t *testing.T) {
	for _, ahead := range []time.Duration{time.Hour, -time.Hour} {
		inFleet(t, 50, func(f *fleet) {
			f.servers.ahead = ahead
			one, two := f.start(16), f.start(16)
			f.until(5 * time.Second)
			f.servers.mu.Lock()
			f.servers.ahead = -ahead
			f.servers.mu.Unlock()
			f.until(20 * time.Second)
			one.kill()
			two.kill()
			f.wantUsed(time.Second, 5*time.Second)
			f.wantUsed(6*time.Second, 20*time.Second)
			if n := f.between(5*time.Second, 6*time.Second); n > 50+f.burst()+4*5 { // what was leased ahead may be leased again
				t.Errorf("%d calls in the second in which the clock was set", n)
			}
		})
	}
}

// A limit that was set too low by mistake and is put right holds nobody up.
func TestALimitThatWasChangedHoldsAtOnce(t *testing.T) {
	inFleet(t, 0.01, func(f *fleet) {
		slow := f.start(8)
		f.until(10 * time.Second)
		slow.kill()
		f.perSecond = 50
		fast := f.start(8)
		f.until(20 * time.Second)
		fast.kill()
		f.wantUsed(11*time.Second, 20*time.Second)
	})
}

func TestWhoeverWaitsIsSentAwayWhenTheProgramEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stop := make(chan struct{})
		began, ends := time.Now(), sync.WaitGroup{}
		fleet := NewFleet(1, &line{servers: &servers{}}, zerolog.Nop()) // it does not run
		for _, limit := range []*Limit{{Fleet: fleet}, {Replica: NewReplica(0.01)}} {
			limit.Stop, limit.Waited = stop, func(time.Duration) {}
			if limit.Replica != nil {
				if err := limit.Wait(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			ends.Go(func() {
				if err := limit.Wait(t.Context()); !errors.Is(err, ErrStopping) {
					t.Errorf("got %v", err)
				}
			})
			ends.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if err := limit.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("got %v", err)
				}
			})
		}
		time.Sleep(5 * time.Second)
		close(stop)
		ends.Wait()
		if took := time.Since(began); took != 5*time.Second {
			t.Errorf("it took %v", took)
		}
		if short := fleet.short.Load(); short != 0 {
			t.Errorf("%d callers are still counted", short)
		}
	})
}

func TestAReplicaKeepsItsOwnRate(t *testing.T) {
	for _, perSecond := range []float64{0.5, 200} {
		synctest.Test(t, func(t *testing.T) {
			ctx, end := context.WithTimeout(t.Context(), time.Minute)
			defer end()
			limit := &Limit{Replica: NewReplica(perSecond), Waited: func(time.Duration) {}}
			n := 0
			for limit.Wait(ctx) == nil {
				n++
			}
			if want := int(60*perSecond) + 1; n < want-1 || n > want {
				t.Errorf("%d calls in a minute, want %d", n, want)
			}
		})
	}
}
