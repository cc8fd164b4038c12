package sweep

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"errand/internal/sandbox/devkit/inshort"
	"errand/pkg/clients"
)

var orders = map[string]Order{"newest first": NewestFirst, "oldest first": oldestFirst, "unordered": Unordered}

// inWorld runs f in virtual time over a list of n rows of each order.
func inWorld(t *testing.T, n int, f func(w *world)) {
	t.Helper()
	for name, o := range orders {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { f(newWorld(t, o, n)) })
		})
	}
}

func inOrderedWorld(t *testing.T, n int, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(newWorld(t, NewestFirst, n)) })
}

func TestAListIsReadToItsEndOnceAndThenSlowly(t *testing.T) {
	inWorld(t, 2010, func(w *world) {
		most := 70
		if w.order != NewestFirst {
			most = 110 // one reading shows all but rows that moved to a page it had passed, and the next one these
		}
		if n := w.run(10 * time.Second); n > most {
			w.Errorf("the first readings took %d pages, want 42 each and a few more", n)
		}
		w.check(time.Time{})
		if n := w.run(10 * time.Minute); n > 10*60+10*12+20 {
			w.Errorf("%d pages were read in ten idle minutes, want a page a second and a few", n)
		}
		w.check(time.Time{})
	})
}

func TestANewRowIsPublishedByTheNextSweep(t *testing.T) {
	inWorld(t, 500, func(w *world) {
		w.run(time.Minute)
		for range 50 {
			w.change(func() { w.add(3) })
			w.run(2 * time.Second)
			if w.order == NewestFirst {
				w.check(time.Time{})
			}
		}
		w.run(5 * time.Minute)
		w.check(time.Time{})
	})
}

// The calls of a minute are bounded whatever the list does, and a new row is published within two seconds.
func TestCallsAreBoundedAndNewRowsArePublishedInTime(t *testing.T) {
	for name, c := range map[string]struct {
		change func(l *list)
		rate   int // rows a second
		calls  int // a minute, at most
	}{
		"idle":                   {func(*list) {}, 0, 6 + 1 + 60},
		"50 rows a second":       {func(*list) {}, 50, 120 + 1 + 60},
		"pages of a fixed size":  {func(l *list) { l.fixed, l.maxRows = true, 100 }, 50, 120 + 1 + 60},
		"a row out of order":     {func(l *list) { r := l.rows[len(l.rows)-40]; r.created = r.created.Add(-9 * time.Minute) }, 50, 120 + 1 + 60},
		"nobody knows the total": {func(l *list) { l.total = func(int) int { return 0 } }, 50, 120 + 1 + 60},
	} {
		t.Run(name, func(t *testing.T) {
			inOrderedWorld(t, 100, func(w *world) {
				w.change(func() {
					w.add(20_000)
					for i, r := range w.rows {
						r.created = r.created.Add(-time.Duration(len(w.rows)-i) * time.Minute)
					}
				})
				c.change(w.list)
				w.sweeper.Limit = 100
				w.run(5 * time.Minute) // the first reading
				made := w.made
				minutes := 10
				if inshort.Asked(t) {
					minutes = 2
				}
				var others sync.WaitGroup
				if c.rate > 0 {
					others.Go(func() {
						for range minutes*60 - 5 {
							time.Sleep(time.Second)
							w.change(func() { w.add(c.rate) })
						}
					})
				}
				if n := w.run(time.Duration(minutes) * time.Minute); n > minutes*c.calls+30 {
					w.Errorf("%d calls a minute, want at most %d", n/minutes, c.calls)
				}
				others.Wait()
				w.check(time.Time{})
				late := 0
				at := map[ID]time.Time{}
				for _, e := range w.events {
					at[e.ID] = e.At
				}
				for _, r := range w.rows {
					if took := at[r.id(1)].Sub(r.created); r.key > made && took > 2*time.Second {
						late++
					}
				}
				if late > 10*c.rate { // those that came first, after an idle pause
					w.Errorf("%d of %d rows were published more than two seconds after they came", late, w.made-made)
				}
			})
		})
	}
}

// A row that is late by less than Overlap is published within minutes, however long a scan takes.
func TestLateRowsAreFoundWithinMinutes(t *testing.T) {
	inWorld(t, 100, func(w *world) {
		if w.order != NewestFirst {
			w.Skip("a new row is found there when the scan comes by")
		}
		w.change(func() {
			w.add(50_037) // the last page is short
			for i, r := range w.rows {
				r.created, r.final = r.created.Add(-time.Duration(len(w.rows)-i)*time.Minute), true
			}
		})
		w.sweeper.Limit = 100
		var late []*row
		go func() {
			time.Sleep(20 * time.Minute)
			for range 20 {
				time.Sleep(time.Minute)
				w.change(func() {
					w.add(300)
					late = append(late, w.late(2*time.Minute))
					for _, r := range w.rows[50_000:] {
						r.final = true
					}
				})
			}
		}()
		w.run(45 * time.Minute)
		at := map[ID]time.Time{}
		for _, e := range w.events {
			at[e.ID] = e.At
		}
		for i, r := range late {
			if took := at[r.id(1)].Sub(r.created); took > 5*time.Minute || took < 0 {
				w.Errorf("late row %d was published after %v", i, took)
			}
		}
	})
}

func TestLateRowsAndNewStatesAreFoundWhereverTheyAre(t *testing.T) {
	inWorld(t, 1000, func(w *world) {
		w.run(time.Minute)
		w.change(func() {
			for _, age := range []time.Duration{30 * time.Minute, 30 * time.Hour, 35 * time.Hour} {
				w.late(age)
			}
			for _, r := range w.rows[:900] {
				if !r.final {
					r.states, r.final = 2, true
				}
			}
		})
		w.run(3 * time.Minute)
		w.check(time.Time{})
	})
}

// A list that is longer than what one process lives to scan is scanned all the same.
func TestAScanGoesOnWhereTheLastProcessStopped(t *testing.T) {
	inOrderedWorld(t, 4000, func(w *world) {
		w.sweeper.Limit, w.maxRows = 2, 2
		w.run(2 * time.Hour) // the first reading
		w.change(func() { w.late(3990 * time.Minute) })
		for range 4 {
			w.run(20 * time.Minute)
		}
		w.check(time.Time{})
	})
}

func TestAnEmptyPageLosesNothing(t *testing.T) {
	inWorld(t, 1000, func(w *world) {
		w.fixed, w.maxRows = true, 50
		n := 0
		w.empty = func() bool { n++; return n == 11 || n == 12 || n == 13 || n == 14 }
		w.run(3 * time.Minute)
		w.check(time.Time{})
	})
}

// A depth that answers empty pages while the total says more: the calls are bounded, the
// list counts as read, and new rows are published.
func TestADepthThatIsNotShownCostsNoCalls(t *testing.T) {
	inOrderedWorld(t, 2000, func(w *world) {
		w.depth = 1000
		w.run(10 * time.Minute)
		if n := w.run(30 * time.Minute); n > 30*60+30*12+30 {
			w.Errorf("%d pages were read in 30 minutes", n)
		}
		w.change(func() { w.add(7) })
		w.run(2 * time.Second)
		w.check(w.rows[1007].created)
		if len(w.marks) == 0 {
			w.Error("there is no mark")
		}
	})
}

// Events age out: their rows are not published again, and what is new is.
func TestWhatHasAgedOutIsNotPublishedAgain(t *testing.T) {
	for age, days := range map[time.Duration]int{48 * time.Hour: 8, 30 * 24 * time.Hour: 45} {
		if inshort.Asked(t) && days > 8 {
			continue
		}
		inWorld(t, 100, func(w *world) {
			w.age = age
			w.sweeper.Interval = 10 * time.Minute
			for range days {
				w.change(func() { w.add(4) })
				w.run(24 * time.Hour)
				w.sweeper.Interval = 10 * time.Minute
			}
			w.check(time.Time{})
		})
	}
}

// When events are kept for longer than before, rows whose events are gone still count as published; so they do when events
// are kept for less long.
func TestAnotherAgeOfEventsPublishesNothingAgain(t *testing.T) {
	inWorld(t, 300, func(w *world) {
		w.sweeper.Interval = 10 * time.Minute
		day := func(n int) {
			for range n {
				w.change(func() { w.add(4) })
				w.run(24 * time.Hour)
			}
		}
		for _, age := range []time.Duration{48 * time.Hour, 30 * 24 * time.Hour, 24 * time.Hour, 10 * 24 * time.Hour} {
			w.age = age
			day(3)
		}
		w.check(time.Time{})
	})
}

// While no poller ran most events were dropped, and then they are kept for longer: rows whose events are gone still count as
// published, and what was made meanwhile is published.
func TestAnotherAgeWhileNoPollerRanPublishesNothingAgain(t *testing.T) {
	aways := []time.Duration{47*time.Hour + 50*time.Minute, 30 * time.Hour, 47 * time.Hour}
	for _, away := range aways[:inshort.Choose(t, len(aways), 1)] {
		inWorld(t, 300, func(w *world) {
			if inshort.Asked(w.T) && w.order != NewestFirst {
				return
			}
			w.sweeper.Interval, w.age = 10*time.Minute, 48*time.Hour
			for range 20 * 8 {
				w.change(func() { w.add(4) })
				w.run(30 * time.Minute)
			}
			w.change(func() { w.add(20) })
			time.Sleep(away)
			w.expire()
			w.age = 30 * 24 * time.Hour
			w.run(24 * time.Hour)
			w.check(time.Time{})
		})
	}
}

func TestADeferredRowsEndIsPublishedDaysLater(t *testing.T) {
	inWorld(t, 33, func(w *world) {
		w.run(time.Minute)
		w.sweeper.Interval = time.Minute
		w.age = 48 * time.Hour
		w.change(func() { w.add(1); w.rows[33].final = false })
		w.run(time.Minute)
		for day := range 4 {
			w.run(25 * time.Hour)
			w.change(func() { w.rows[33].states++; w.rows[33].final = day == 3; w.add(2) })
			w.run(5 * time.Minute)
			w.check(time.Time{})
		}
	})
}

// A total that grows by itself is not a reason to read everything each time.
func TestALyingTotalCostsNoCalls(t *testing.T) {
	lies := map[string]func() func(n int) int{
		"grows by itself": func() func(n int) int { grown := 0; return func(n int) int { grown++; return n + grown } },
		"too low":         func() func(n int) int { return func(n int) int { return n / 2 } },
		"too high":        func() func(n int) int { return func(n int) int { return 3 * n } },
		"none":            func() func(n int) int { return func(int) int { return 0 } },
		"of the page":     func() func(n int) int { return func(int) int { return 50 } },
		"cached": func() func(n int) int {
			var at time.Time
			cached := 0
			return func(n int) int {
				if time.Since(at) > 5*time.Minute {
					at, cached = time.Now(), n
				}
				return cached
			}
		},
	}
	for name, lie := range lies {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 330, func(w *world) {
				w.total = lie()
				w.run(2 * time.Minute)
				w.change(func() { w.add(120) })
				if n := w.run(20 * time.Minute); n > 20*60+20*3*12+100 {
					w.Errorf("%d pages were read in 20 minutes", n)
				}
				w.check(time.Time{})
				if len(w.marks) == 0 {
					w.Error("there is no mark")
				}
			})
		})
	}
}

func TestPagesOfAnyLengthHideNoRow(t *testing.T) {
	for _, size := range []int{1, 9, 49, 50, 51, 120} {
		for _, fixed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d fixed %t", size, fixed), func(t *testing.T) {
				inWorld(t, 200, func(w *world) {
					w.maxRows, w.fixed = size, fixed
					pages := 0
					w.busy = func(l *list) {
						switch pages++; {
						case pages > 100:
						case pages%9 == 4:
							l.remove(3)
						case pages%9 == 6:
							l.add(5)
						}
					}
					w.run(15 * time.Minute)
					w.check(time.Time{})
				})
			})
		}
	}
}

func TestPagesThatAreShorterThanAskedForHideNoRow(t *testing.T) {
	inWorld(t, 400, func(w *world) {
		w.maxRows, w.sweeper.Limit = 25, 100
		w.run(3 * time.Minute)
		w.check(time.Time{})
		if len(w.marks) == 0 {
			w.Error("there is no mark")
		}
	})
}

// published stores a row's state as another sweeper does, which has the leadership from then on.
func (w *world) published(r *row, state int) {
	w.store.mu.Lock()
	defer w.store.mu.Unlock()
	w.leader++
	w.events = append(w.events, Stored{r.id(state), time.Now(), false})
	w.told[r.id(state)]++
}

// A sweeper died after it had published the newest pages and before the older ones. The
// other one goes on reading where these end, and does not mark the list as published before.
func TestWhatADeadSweeperLeftOutIsPublishedAtOnce(t *testing.T) {
	inOrderedWorld(t, 300, func(w *world) {
		const published, missing = 255, 15
		time.AfterFunc(20*time.Second, func() {
			w.change(func() {
				w.add(published + missing)
				for _, r := range w.rows[len(w.rows)-published:] {
					w.published(r, 1)
				}
			})
		})
		w.run(45 * time.Second) // the next round is not yet due
		w.check(time.Time{})
	})
}

func TestAHeldUpstreamIsProbedAndTheSweepResumesByItself(t *testing.T) {
	inOrderedWorld(t, 120, func(w *world) {
		began := time.Now()
		w.answer = func(int, int) error {
			if time.Since(began) < time.Minute {
				return &clients.Error{Fate: clients.Held, Status: http.StatusUnauthorized}
			}
			return nil
		}
		time.AfterFunc(50*time.Second, func() {
			if why := w.sweeper.Fault(); !strings.Contains(why, "401") {
				w.Errorf("after 50 s of 401: fault %q", why)
			}
		})
		if n := w.run(55 * time.Second); n != 6 {
			w.Errorf("%d calls in 55 s, want one each 10 s", n)
		}
		w.run(time.Minute)
		if why := w.sweeper.Fault(); why != "" {
			w.Errorf("after it: fault %q", why)
		}
		w.check(time.Time{})
	})
}

// A person who is called reads the last minutes of the log, however long ago the key was refused first.
func TestARefusedKeyIsLoggedOnceAMinute(t *testing.T) {
	inOrderedWorld(t, 120, func(w *world) {
		var log bytes.Buffer
		w.sweeper.Logger = zerolog.New(&log)
		w.answer = func(int, int) error { return &clients.Error{Fate: clients.Held, Status: http.StatusUnauthorized} }
		w.run(10*time.Minute + 5*time.Second)
		if n := strings.Count(log.String(), "sweep: failed"); n != 11 {
			w.Errorf("%d lines in ten minutes, want 11", n)
		}
	})
}

func TestABusyUpstreamMakesTheSweeperUnreadyInTheEnd(t *testing.T) {
	inOrderedWorld(t, 120, func(w *world) {
		busy := &clients.Error{Fate: clients.Busy, Status: http.StatusServiceUnavailable}
		w.answer = func(_, n int) error {
			if n%2 == 0 {
				return nil
			}
			return busy
		}
		w.run(10 * time.Second)
		w.check(time.Time{})
		w.answer = func(int, int) error { return busy }
		w.run(5 * time.Second)
		if why := w.sweeper.Fault(); why != "" {
			w.Errorf("one sweep that failed: fault %q", why)
		}
		w.run(3 * time.Minute)
		if why := w.sweeper.Fault(); why == "" {
			w.Error("no fault after minutes of 503")
		}
	})
}

// A service that could not be reached and hangs now is said to hang after one try, not after all of a sweep's.
func TestTheFaultIsWhatTheLastTryFound(t *testing.T) {
	inOrderedWorld(t, 120, func(w *world) {
		refused, hung, began := errors.New("connection refused"), errors.New("timeout"), time.Now()
		w.answer = func(int, int) error {
			if time.Since(began) <= 2*time.Minute {
				return &clients.Error{Fate: clients.Busy, Err: refused}
			}
			<-time.After(30 * time.Second)
			return &clients.Error{Fate: clients.Unknown, Err: hung}
		}
		says := func(after time.Duration, want error) {
			time.AfterFunc(after, func() {
				if why := w.sweeper.Fault(); !strings.Contains(why, want.Error()) || w.sweeper.Upstream() != why {
					w.Errorf("after %v it says %q, want %v", after, why, want)
				}
			})
		}
		says(2*time.Minute, refused)
		says(2*time.Minute+45*time.Second, hung)
		w.run(3 * time.Minute)
	})
}

// A poller that starts while its service is down says so from the first moment, and works
// again soon after the service does.
func TestASweeperIsReadyFromItsFirstCompleteSweepOn(t *testing.T) {
	inOrderedWorld(t, 120, func(w *world) {
		if why := w.sweeper.Fault(); why == "" {
			w.Error("before the first sweep: no fault")
		}
		began, down := time.Now(), 20*time.Minute
		w.answer = func(int, int) error {
			if time.Since(began) < down {
				return &clients.Error{Fate: clients.Busy, Status: http.StatusServiceUnavailable}
			}
			return nil
		}
		for _, after := range []time.Duration{time.Second, 30 * time.Second, 10 * time.Minute} {
			time.AfterFunc(after, func() {
				if why := w.sweeper.Fault(); why == "" {
					w.Errorf("%s after the start, while its service is down: no fault", after)
				}
			})
		}
		w.sweeper.Lag = func(time.Duration) {
			if after := time.Since(began); after < down {
				w.Errorf("%s after the start, while its service is down, it says how far the list is read", after)
			}
		}
		time.AfterFunc(down+15*time.Second, func() {
			if why := w.sweeper.Fault(); why != "" {
				w.Errorf("15 s after its service came back: fault %q", why)
			}
		})
		w.run(down + time.Minute)
		w.check(time.Time{})
	})
}

func TestShutdownFinishesWhatIsBeingStored(t *testing.T) {
	inOrderedWorld(t, 500, func(w *world) {
		ctx, stop := context.WithCancel(w.Context())
		w.sink = &sink{store: w.store}
		w.sweeper.Sink = w.sink
		stored := 0
		w.sink.crash = func() bool {
			if stored++; stored == 60 {
				stop()
			}
			return false
		}
		w.sweeper.Run(ctx)
		if stored < 60 || stored%50 != 0 {
			w.Errorf("%d rows were stored, want whole pages of 50", stored)
		}
	})
}

func TestPublishingBeginsAtSince(t *testing.T) {
	inWorld(t, 500, func(w *world) {
		since := w.rows[400].created
		w.sweeper.Since = since
		w.run(5 * time.Minute)
		w.sweeper.Since = time.Now() // a later start continues from the mark
		w.change(func() { w.add(3) })
		w.run(5 * time.Minute)
		w.check(since)
		if n := len(w.told); n != 103 {
			w.Errorf("%d states were published, want the states of 103 rows", n)
		}
	})
}

// A time in the future, such as one in a wrong zone, does not publish the whole list.
func TestPublishingBeginsAtATimeToCome(t *testing.T) {
	inWorld(t, 500, func(w *world) {
		began := time.Now()
		w.sweeper.Since = began.Add(8 * time.Hour)
		w.run(5 * time.Minute)
		w.change(func() { w.add(3) })
		w.run(5 * time.Minute)
		w.check(began)
		if n := len(w.told); n != 3 {
			w.Errorf("%d states were published, want those of 3 rows", n)
		}
	})
}

func TestAMarkIsStoredWhenThereIsSomethingNewAndOnceAnHour(t *testing.T) {
	inOrderedWorld(t, 120, func(w *world) {
		w.run(150 * time.Minute)
		if n := len(w.marks); n != 3 {
			w.Errorf("%d marks in 2.5 idle hours, want 3", n)
		}
		if m := w.marks[0]; !m.CompleteThrough.Equal(w.rows[119].created) || m.New != 120 || m.Total != 120 || !m.NewestFirst {
			w.Errorf("first mark = %+v", m)
		}
	})
}
