package sweep

import (
	"testing"
	"time"
)

// last is what the last sweep knew.
func (w *world) last() Swept { return w.sink.lastSwept() }

// In a list whose rows are all too old to be published, a mark is not stored by each sweep.
func TestAnOldListIsMarkedSeldom(t *testing.T) {
	inOrderedWorld(t, 300, func(w *world) {
		began := time.Now()
		w.sweeper.Since = began.Add(-time.Hour)
		w.run(3 * time.Hour)
		if len(w.marks) > 5 {
			w.Errorf("%d marks", len(w.marks))
		}
	})
}

// A row of the future, or a clock that is ahead, does not show that a list goes on that stands still.
func TestARowOfTheFutureDoesNotShowThatAListGoesOn(t *testing.T) {
	inOrderedWorld(t, 300, func(w *world) {
		w.change(func() {
			for _, r := range w.rows {
				r.created = r.created.Add(31 * time.Hour)
			}
		})
		newest := w.rows[299].created
		if !newest.After(time.Now().Add(6 * time.Hour)) {
			t.Fatal("no row is of the future")
		}
		w.run(time.Hour)
		stopped := time.Now()
		for range 3 {
			w.run(5 * time.Hour)
			if s := w.last(); s.CompleteThrough.After(stopped) {
				w.Errorf("%v later: complete through %v", time.Since(stopped), s.CompleteThrough)
			}
		}
		w.change(func() { w.add(1); w.rows[300].created = time.Now().Add(7 * time.Hour) })
		added := time.Now()
		w.run(time.Hour)
		if s := w.last(); s.CompleteThrough.Before(added) {
			w.Errorf("after another row: complete through %v, want %v", s.CompleteThrough, added)
		}
	})
}
