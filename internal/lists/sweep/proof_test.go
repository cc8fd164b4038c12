package sweep

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// complete fails when a sweep reports a reading as complete that began after a row was
// listed, reaches back to it, and has not had it published.
func (w *world) complete(r *row, listed time.Time) {
	w.sink.onSwept = func(s Swept) {
		if g := s.Reading; g.Began.After(listed) && !r.created.Before(g.Back) && w.told[r.id(r.states)] == 0 {
			w.Errorf("%v after the row was listed: %+v is said to be complete", time.Since(listed), g)
			w.sink.onSwept = nil
		}
	}
}

// A reading that lost its place does not become complete by getting far enough.
func TestAReadingThatSkippedRowsIsNotComplete(t *testing.T) {
	inOrderedWorld(t, 600, func(w *world) {
		r := &run[int]{Sweeper: w.sweeper, publisher: newPublisher[int](w.list, &sink{store: w.store})}
		proof := newReading(50, 3*time.Minute, w.rows[300].created)
		proof.resume(100) // as after a page that no other one joined
		at := proof
		err := r.step(w.Context(), &at, 100)
		_, _ = r.settle(0)
		if err != nil || proof.state != short {
			w.Errorf("state %d, %v; want %d", proof.state, err, short)
		}
	})
}

// What a failed sweep has read and not stored is not published: no reading that contains it
// is complete.
func TestAReadingOfRowsThatWereNotStoredIsNotComplete(t *testing.T) {
	inWorld(t, 600, func(w *world) {
		w.run(5 * time.Minute)
		var late *row
		w.change(func() { late = w.late(30 * time.Hour) })
		w.complete(late, time.Now())
		failed := 0
		w.sink.crash = func() bool { failed++; return failed <= 2 }
		w.sweep(10 * time.Minute)
		w.check(time.Time{})
		if failed < 3 {
			t.Errorf("%d writes were tried", failed)
		}
	})
}

// sweep runs like run; what cannot be stored does not end it.
func (w *world) sweep(d time.Duration) {
	w.Helper()
	w.sink = &sink{store: w.store, crash: w.sink.crash, wanted: w.sink.wanted, onSwept: w.sink.onSwept, stop: func() {}}
	w.sweeper.Sink = w.sink
	ctx, stop := context.WithTimeout(w.Context(), d)
	defer stop()
	if err := w.sweeper.Run(ctx); err != nil {
		w.Fatal(err)
	}
}

// What the sink wants takes longer to read than it is from one look at the newest rows to
// the next.
func TestALongReadingIsNotReplacedByAShorterOne(t *testing.T) {
	inOrderedWorld(t, 30_000, func(w *world) {
		w.run(time.Minute)
		began := time.Now()
		w.sink.wanted = began.Add(-96 * time.Hour)
		w.run(8 * time.Minute)
		for _, s := range w.sink.swept {
			if s.Reading.Began.After(began) && !s.Reading.Back.After(w.sink.wanted) {
				return
			}
		}
		t.Errorf("no reading back to %v; the last one is %+v", w.sink.wanted, w.sink.lastSwept().Reading)
	})
}

// A row that changes its state is no row that the list counted and has not shown, and
// neither is a page without a total.
func TestAChangedRowDoesNotHideThatOneIsMissing(t *testing.T) {
	inOrderedWorld(t, 300, func(w *world) {
		missing, silent := 0, false
		w.total = func(n int) int {
			if silent {
				return 0
			}
			return n + missing
		}
		time.AfterFunc(10*time.Minute, func() {
			w.change(func() { r := w.rows[299]; r.states, r.final, missing = 2, true, 1 })
		})
		time.AfterFunc(20*time.Minute, func() { w.change(func() { silent = true }) })
		time.AfterFunc(21*time.Minute, func() { w.change(func() { silent = false }) })
		for after := 11 * time.Minute; after < 30*time.Minute; after += time.Minute / 2 {
			time.AfterFunc(after, func() {
				if !w.sink.lastSwept().Reading.Missing {
					w.Errorf("after %v nothing is missing", after)
				}
			})
		}
		w.change(func() { w.rows[299].final = false })
		w.run(31 * time.Minute)
	})
}

// A page behind the last one is the last one again, and it is full.
func TestTheEndOfAListThatRepeatsItsLastPageIsFound(t *testing.T) {
	for name, o := range orders {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, o, 300)
				w.clamped = true
				w.run(time.Minute)
				if n := w.run(10 * time.Minute); n > 10*60+10*3*12 {
					t.Errorf("%d pages in ten idle minutes", n)
				}
				w.check(time.Time{})
			})
		})
	}
}

// A row that is listed twice, at the ends of two pages, does not look like the end of the
// list: what is behind it is read.
func TestARowThatIsListedTwiceIsNotTheEnd(t *testing.T) {
	inOrderedWorld(t, 500, func(w *world) {
		// Pages of 50 rows: the second one is asked for as rows 49 to 97.
		w.rows[499-97].key, w.rows[499-97].final, w.rows[499-97].states = w.rows[499-49].key, w.rows[499-49].final, w.rows[499-49].states
		w.run(5 * time.Minute)
		w.change(func() { w.late(30 * time.Hour) })
		w.run(10 * time.Minute)
		w.check(time.Time{})
	})
}

// A row that the list counts and does not show for hours is missing until it is shown, also
// for a process that starts meanwhile, and to a reading of the newer part, which ends before
// it could notice; also where rows are published since a time only.
func TestARowThatIsCountedForHoursIsMissingUntilItIsShown(t *testing.T) {
	for _, since := range []time.Duration{0, 26 * time.Hour} {
		inOrderedWorld(t, 300, func(w *world) {
			hidden := 0
			w.total = func(n int) int { return n + hidden }
			w.sink.wanted = time.Now().Add(-time.Hour)
			if since > 0 {
				w.sweeper.Since = time.Now().Add(-since)
			}
			time.AfterFunc(10*time.Minute, func() { w.change(func() { hidden = 1 }) })
			for at := 12*time.Minute + 30*time.Second; at < 5*time.Hour; at += time.Minute {
				time.AfterFunc(at, func() {
					w.change(func() { w.add(1) })
					if r := w.sink.lastSwept().Reading; !r.Missing && !r.Short && !w.Failed() {
						w.Errorf("since %v, after %v nothing is missing: %+v", since, at, r)
					}
				})
			}
			w.run(2 * time.Hour)
			w.run(3 * time.Hour)
		})
	}
}

// The pages of a list without order say nothing about what they do not show, however old
// the last of them is: a list that counts more rows than it shows was not read.
func TestAListWithoutOrderIsNotReadByAnOldPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Unordered, 300)
		w.depth, w.maxRows, w.fixed = 65, 64, true
		shown := w.listing()[:65]
		shown[64].created = w.rows[0].created // alone on the second page
		w.sweeper.Since = w.rows[250].created
		w.sink.onSwept = func(s Swept) {
			if !s.Reading.Began.IsZero() && !s.Reading.Short {
				w.Errorf("%d rows of %d are shown, and %+v is said to be all of it", w.depth, len(w.rows), s.Reading)
				w.sink.onSwept = nil
			}
		}
		w.run(10 * time.Minute)
		if len(w.sink.swept) == 0 {
			t.Error("nothing was swept")
		}
	})
}

// The list counts a row that it does not show while each sweep finds others, so also the one
// that ends a round.
func TestARowIsMissingThoughOthersAreFoundWhileARoundEnds(t *testing.T) {
	for _, at := range []time.Duration{10 * time.Minute, 10*time.Minute + 23*time.Second} { // shortly before a round ends
		inOrderedWorld(t, 300, func(w *world) {
			hidden := 0
			w.total = func(n int) int { return n + hidden }
			w.sweeper.Since = w.rows[100].created // so that readings end before the list does
			for after := time.Minute; after < 14*time.Minute; after += 3 * time.Second {
				time.AfterFunc(after, func() { w.change(func() { w.add(1) }) })
			}
			time.AfterFunc(at, func() { w.change(func() { hidden = 1 }) })
			time.AfterFunc(at+2*time.Minute, func() {
				if r := w.sink.lastSwept().Reading; !r.Missing && !r.Short {
					w.Errorf("hidden after %v, nothing is missing: %+v", at, r)
				}
			})
			w.run(15 * time.Minute)
		})
	}
}
