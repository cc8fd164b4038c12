package sweep

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// complete fails when a reading of the whole list is complete that began after a row was
// listed and has not had it published.
func (w *world) complete(r *row, listed time.Time) {
	w.sink.onSwept = func(time.Time) {
		last := w.sweeper.readLast.Load()
		if last != nil && last.since.IsZero() && last.began.After(listed) && w.told[r.id(r.states)] == 0 {
			w.Errorf("%v after the row was listed the reading of %v is said to be complete", time.Since(listed), last.began)
			w.sink.onSwept = nil
		}
	}
}

// What a failed sweep has read and not stored is not published: no reading that contains it is complete.
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
	w.sink = &sink{store: w.store, crash: w.sink.crash, onSwept: w.sink.onSwept, stop: func() {}}
	w.sweeper.Sink = w.sink
	ctx, stop := context.WithTimeout(w.Context(), d)
	defer stop()
	w.sweeper.Run(ctx)
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

// A service that starts again answers for a minute that its list is empty. No mark covers a row that is not published.
func TestAnEmptyAnswerMovesNoMark(t *testing.T) {
	for name, o := range orders {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, o, 3000)
				w.run(10 * time.Minute)
				for _, from := range []time.Duration{0, 5 * time.Second, 15 * time.Second, 40 * time.Second} {
					w.change(func() {
						w.add(20)
						w.late(30 * time.Second)
					})
					time.Sleep(4 * time.Minute)
					began := time.Now()
					w.empty = func() bool { s := time.Since(began); return s >= from && s < from+time.Minute }
					w.total = func(n int) int {
						if w.empty() {
							return 0
						}
						return n
					}
					d := w.honest(began)
					ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
					d.stop = stop
					w.sweeper.Run(ctx)
					stop()
				}
			})
		})
	}
}

// honest gives the world's sweeper a sink that fails the test at a mark which covers a row that is not published.
func (w *world) honest(began time.Time) *sink {
	d := &sink{store: w.store}
	d.onMark = func(m Mark) {
		for _, r := range w.rows {
			if !w.Failed() && !r.created.After(m.CompleteThrough) && w.told[r.id(1)] == 0 {
				w.Errorf("%v: a mark covers a row made %v before it that is not published", time.Since(began), m.CompleteThrough.Sub(r.created))
			}
		}
	}
	w.sweeper.Sink = d
	return d
}

// For half a minute a service answers the pages behind its first five with nothing, and goes on to say how long its list is. No mark
// covers a row that is not published.
func TestEmptyPagesInFrontOfTheAnchorMoveNoMark(t *testing.T) {
	for name, o := range orders {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, o, 3000)
				w.run(10 * time.Minute)
				for range 700 {
					time.Sleep(time.Second)
					w.change(func() { w.add(1) })
				}
				began := time.Now()
				w.answer = func(page, _ int) error {
					if w.depth = 0; page > 5 && time.Since(began) < 30*time.Second {
						w.depth = 5 * 50
					}
					return nil
				}
				d := w.honest(began)
				ctx, stop := context.WithTimeout(t.Context(), 10*time.Minute)
				defer stop()
				d.stop = stop
				w.sweeper.Run(ctx)
				w.check(time.Time{})
				if time.Since(w.marks[len(w.marks)-1].CompleteThrough) > 15*time.Minute {
					t.Error("the mark stands still")
				}
			})
		})
	}
}

// A row in front is removed while another one is added behind: the total is as before, and the first row of the next page has
// moved to one that was read.
func TestAMarkDoesNotCoverARowThatMovedWhileTheTotalStoodStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, oldestFirst, 300)
		moved := false
		w.answer = func(page, _ int) error {
			if page == 4 && !moved {
				moved = true
				w.rows = slices.Delete(w.rows, 10, 11)
				w.add(1)
			}
			return nil
		}
		d := w.honest(time.Now())
		ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute)
		defer stop()
		d.stop = stop
		w.sweeper.Run(ctx)
		w.check(time.Time{})
		if len(w.marks) == 0 {
			t.Error("there is no mark")
		}
	})
}
