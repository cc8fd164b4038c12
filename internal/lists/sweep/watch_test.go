package sweep

import (
	"testing"
	"time"
)

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

// Rows from the future, as by a wrong clock or zone, are not said to be published before what is made meanwhile.
func TestRowsOfTheFutureDoNotMoveTheMarkAhead(t *testing.T) {
	inOrderedWorld(t, 300, func(w *world) {
		w.change(func() {
			for _, r := range w.rows {
				r.created = r.created.Add(31 * time.Hour)
			}
		})
		w.sink.onSwept = func(through time.Time) {
			if through.After(time.Now()) {
				w.Errorf("complete through %v", time.Until(through))
			}
		}
		w.run(time.Hour)
		w.change(func() { w.add(1); w.rows[300].created = time.Now().Add(7 * time.Hour) })
		added := time.Now()
		w.run(time.Hour)
		if through := w.sink.lastSwept(); through.Before(added) {
			w.Errorf("after another row: complete through %v, want %v", through, added)
		}
	})
}
