package poll

import (
	"context"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"errand/pkg/clients"
	"errand/pkg/clients/mail"
)

// inWorld runs f in virtual time over a log of n rows, a minute apart, whose newest
// is a day old.
func inWorld(t *testing.T, o order, n int, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, upstream: &upstream{order: o, random: rand.New(rand.NewPCG(3, uint64(n)))}, store: &store{}}
		for range n {
			w.add(1)
			time.Sleep(time.Minute)
		}
		time.Sleep(24 * time.Hour)
		w.sink = &sink{store: w.store}
		w.poller = w.upstream.poller(t, w.sink, 50)
		f(w)
	})
}

type world struct {
	*testing.T
	*upstream
	*store
	poller *Poller
	sink   *sink
}

// sweeps runs a new poller for d and returns the pages that were requested.
func (w *world) sweeps(d time.Duration) []string {
	w.Helper()
	w.calls = nil
	w.poller.Sink = &sink{store: w.store} // a new process
	ctx, stop := context.WithTimeout(w.Context(), d)
	defer stop()
	if err := w.poller.Run(ctx); err != nil {
		w.Fatal(err)
	}
	return w.calls
}

func TestASortedLogIsReadToItsEndOnceAndThenOnlyWhereItGrows(t *testing.T) {
	for o, later := range map[order]int{
		newestFirst: 2, // page 1 has rows within the overlap
		oldestFirst: 4, // the first, two to find where to begin, and one to the end
		unordered:   60,
	} {
		t.Run(o.String(), func(t *testing.T) {
			inWorld(t, o, 2010, func(w *world) {
				if n := len(w.sweeps(900 * time.Millisecond)); n < 41 || n > 60 {
					t.Errorf("the first sweep read %d pages, want 41 and a few more for the overlaps", n)
				}
				w.checkComplete(w.T, w.store)
				for what := range 2 { // two more pollers
					if n := len(w.sweeps(500 * time.Millisecond)); n > later {
						t.Errorf("sweep %d read %d pages, want at most %d", what, n, later)
					}
				}
				w.add(3)
				w.sweeps(5 * time.Second)
				w.checkComplete(w.T, w.store)
			})
		})
	}
}

func TestAHeldUpstreamIsProbedAndTheSweepResumesByItself(t *testing.T) {
	inWorld(t, newestFirst, 120, func(w *world) {
		status := http.StatusUnauthorized
		w.answer = func() (int, bool) { return status, status == 0 }
		time.AfterFunc(time.Minute, func() {
			w.upstream.mu.Lock()
			defer w.upstream.mu.Unlock()
			if why := w.poller.Fault(); !strings.Contains(why, "401") {
				t.Errorf("after a minute of 401: fault %q", why)
			}
			if n := len(w.calls); n != 6 && n != 7 {
				t.Errorf("%d calls in a minute, want one each 10 s", n)
			}
			status = 0
		})
		w.sweeps(2 * time.Minute)
		if why := w.poller.Fault(); why != "" {
			t.Errorf("after it: fault %q", why)
		}
		w.checkComplete(w.T, w.store)
	})
}

func TestABusyUpstreamIsAskedAgainAndMakesThePollerUnreadyInTheEnd(t *testing.T) {
	inWorld(t, newestFirst, 120, func(w *world) {
		calls := 0
		w.answer = func() (int, bool) { calls++; return http.StatusServiceUnavailable, calls%2 == 0 }
		w.sweeps(5 * time.Second)
		w.checkComplete(w.T, w.store)
		w.answer = func() (int, bool) { return http.StatusBadGateway, false }
		w.sweeps(5 * time.Second)
		if why := w.poller.Fault(); why != "" {
			t.Errorf("one sweep that failed: fault %q", why)
		}
		w.sweeps(2 * time.Minute)
		if why := w.poller.Fault(); why == "" {
			t.Error("no fault after minutes of 502")
		}
	})
}

func TestShutdownFinishesThePageUnderWay(t *testing.T) {
	inWorld(t, newestFirst, 500, func(w *world) {
		ctx, stop := context.WithCancel(w.Context())
		stored := 0
		w.sink.crash = func() bool {
			if stored++; stored == 60 {
				stop()
			}
			return false
		}
		if err := w.poller.Run(ctx); err != nil {
			w.Fatal(err)
		}
		if diff := cmp.Diff([]int{50, 48}, w.sink.published); diff != "" {
			t.Errorf("events published per page (-want +got):\n%s", diff)
		}
	})
}

func TestAWatermarkIsStoredWhenThereIsSomethingNewAndOnceAnHour(t *testing.T) {
	inWorld(t, newestFirst, 120, func(w *world) {
		published := 0
		w.poller.Published = func(_ string, n int) { published += n }
		w.sweeps(150 * time.Minute)
		if published != 120 {
			t.Errorf("the callback counted %d events, want 120", published)
		}
		if n := len(w.marks); n != 3 {
			t.Errorf("%d watermarks in 2.5 idle hours, want 3", n)
		}
		newest := w.rows[len(w.rows)-1]
		if m := w.marks[0]; !m.CompleteThrough.Equal(newest.created) || m.New != 120 || m.TotalRecord != 120 {
			t.Errorf("first watermark = %+v", m)
		}
		w.add(2)
		w.sweeps(5 * time.Second)
		if m := w.marks[len(w.marks)-1]; len(w.marks) != 4 || m.New != 2 || !m.CompleteThrough.Equal(w.rows[121].created) {
			t.Errorf("%d watermarks, the last is %+v", len(w.marks), m)
		}
	})
}

func TestALogThatTurnsOutToHaveNoOrderIsReadCompletely(t *testing.T) {
	inWorld(t, newestFirst, 1000, func(w *world) {
		w.sweeps(5 * time.Second)
		time.Sleep(100 * time.Hour)
		w.add(200)
		w.order = unordered // but its first pages are still sorted
		for i, r := range w.rows {
			if r.place = r.place/2 + 1<<63; i >= 1000 {
				r.place = uint64(1200 - i)
			}
		}
		w.rows[1199].place = 1 << 63 // a new row among the old ones
		w.sweeps(30 * time.Second)
		counts := w.delivered(w.T)
		for _, r := range w.rows[1000:] {
			if key := r.envelope + " " + r.to + " " + string(r.state()); counts[key] != 1 {
				t.Errorf("%s was published %d times", key, counts[key])
			}
		}
	})
}

func TestALateRowOfALogWithoutOrderIsPublishedAndAnExpiredOneIsNot(t *testing.T) {
	inWorld(t, unordered, 300, func(w *world) {
		w.sweeps(5 * time.Second)
		time.Sleep(60 * time.Hour)
		w.add(1)
		w.sweeps(5 * time.Second)
		w.add(1)
		w.rows[301].created = time.Now().Add(-40 * time.Hour) // long before the last published row
		w.sweeps(5 * time.Second)
		w.checkComplete(w.T, w.store)
		w.events = w.events[301:] // the others were too old
		w.sweeps(5 * time.Second)
		if n := len(w.delivered(w.T)); n != 2 {
			t.Errorf("%d events after the old ones were dropped, want the two that were left", n)
		}
	})
}

func TestAStateThatIsSeenAgainIsNotForgotten(t *testing.T) {
	began := time.Now()
	m := &memory{seen: map[ID]stamp{}, complete: began.Add(40 * time.Hour)}
	for i := range 2000 {
		m.add(ID{byte(i), byte(i >> 8)}, stampOf(began, false))
	}
	if !m.knows(ID{1}, began.Add(30*time.Hour)) { // the same row with a later time
		t.Fatal("what was added is not known")
	}
	bound := m.complete.Add(-time.Minute - keep)
	m.forget(bound, 0)
	if !m.knows(ID{2}, began) {
		t.Error("what was forgotten last is not known")
	}
	if m.recall(); len(m.seen) != 1 || !m.knows(ID{1}, began) || m.knows(ID{2}, began) {
		t.Errorf("%d ids are left, want the one that was seen again", len(m.seen))
	}
	if reach := m.reach(newestFirst, time.Minute, false); reach.Before(m.since) {
		t.Errorf("the next sweep reaches back to %v, but seen begins at %v", reach, m.since)
	}
}

func TestRowsThatAreAddedMeanwhileAreLookedForAtOnce(t *testing.T) {
	inWorld(t, newestFirst, 500, func(w *world) {
		w.busy = func(u *upstream) {
			if len(u.calls) == 4 {
				u.add(30)
			}
		}
		w.sweeps(5 * time.Second)
		w.checkComplete(w.T, w.store)
	})
}

// slowTransport counts the reads that are under way.
type slowTransport struct {
	http.RoundTripper
	now, max int
}

func (s *slowTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	s.now++
	s.max = max(s.max, s.now)
	time.Sleep(5 * time.Millisecond)
	defer func() { s.now-- }()
	return s.RoundTripper.RoundTrip(r)
}

func TestTheNextPageIsReadWhileThisOneIsPublished(t *testing.T) {
	inWorld(t, newestFirst, 1000, func(w *world) {
		s := &slowTransport{RoundTripper: w.upstream}
		var err error
		if w.poller.Upstream, err = mail.New(mail.Config{URL: "http://127.0.0.1", Key: clients.NewSecret("key")}, clients.Transport(s)); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(w.Context())
		var took time.Duration
		began := time.Now()
		w.poller.Lag = func(d time.Duration) { took = time.Since(began); stop() }
		if err := w.poller.Run(ctx); err != nil {
			t.Fatal(err)
		}
		// 23 reads of 5 ms and 1000 events of 0.1 ms, at the same time except the first and the last.
		if took > 140*time.Millisecond {
			t.Errorf("the sweep took %v: it read and published one after the other", took)
		}
		if s.max != 1 {
			t.Errorf("%d reads at once, want 1", s.max)
		}
	})
}
