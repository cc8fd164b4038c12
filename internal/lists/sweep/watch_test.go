package sweep

import (
	"context"
	"testing"
	"time"
)

// last is what the last sweep knew.
func (w *world) last() Swept { return w.sink.lastSwept() }

// replace replaces the list by other rows.
func (w *world) replace(n int) {
	w.rows = nil
	w.add(n)
}

// The list is replaced between two pages of one sweep: what the first of them shows is no
// proof that nothing was missed, and neither are the rows that the second has brought.
func TestAGapInTheMiddleOfASweepShows(t *testing.T) {
	inOrderedWorld(t, 300, func(w *world) {
		var replaced time.Time
		pages, began := 0, time.Now()
		w.busy = func(l *list) {
			if pages++; time.Since(began) > 10*time.Minute && replaced.IsZero() && w.sink.stop != nil && pages%3 == 0 {
				replaced = time.Now()
				w.replace(300)
			}
		}
		w.run(20 * time.Minute)
		if got := w.last().WatchedSince; got.Before(replaced) {
			w.Errorf("watched since %v, want %v or later", got, replaced)
		}
	})
}

// A sweeper stands still while a page is stored, the list is replaced, and another sweeper
// publishes it: what it published is no proof that the first one has watched.
func TestASweeperThatStoodStillHasNotWatched(t *testing.T) {
	for name, at := range map[string]string{"before its mark": "mark", "while a page is stored": "page"} {
		t.Run(name, func(t *testing.T) {
			inOrderedWorld(t, 300, func(w *world) {
				began, still := time.Now(), false
				var replaced time.Time
				w.sink.crash = func() bool { return false }
				stop := func() {
					still, replaced = true, time.Now().Add(3*time.Hour)
					time.Sleep(3 * time.Hour)
					w.list.mu.Lock()
					w.replace(300)
					w.shown = nil
					w.list.mu.Unlock()
					other := &sink{store: w.store}
					s := w.list.sweeper(other, 50)
					ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
					defer cancel()
					if err := s.Run(ctx); err != nil {
						w.Error(err)
					}
				}
				w.sink.before = func(what string) {
					if what == at && !still && time.Since(began) > 10*time.Minute {
						stop()
					}
				}
				time.AfterFunc(11*time.Minute, func() { w.change(func() { w.add(3) }) })
				w.run(4 * time.Hour)
				if !still {
					t.Fatal("it did not stand still")
				}
				if got := w.last().WatchedSince; got.Before(replaced) {
					w.Errorf("watched since %v, want %v or later", got, replaced)
				}
			})
		})
	}
}

// A row with a time long ago is not one that was known before.
func TestARowWithAWrongTimeDoesNotHideAGap(t *testing.T) {
	inOrderedWorld(t, 300, func(w *world) {
		w.age = 48 * time.Hour
		w.run(time.Hour)
		time.Sleep(24 * time.Hour)
		w.change(func() { w.add(5) })
		w.run(time.Hour)
		time.Sleep(24 * time.Hour)
		replaced := time.Now()
		w.change(func() { w.replace(60); w.rows[30].created = time.Unix(1, 0) })
		w.run(time.Hour)
		if got := w.last().WatchedSince; got.Before(replaced) {
			w.Errorf("watched since %v, want %v or later", got, replaced)
		}
	})
}

// In a list whose rows are all too old to be published the watch goes on, and a mark is not
// stored by each sweep.
func TestAnOldListIsWatched(t *testing.T) {
	inOrderedWorld(t, 300, func(w *world) {
		began := time.Now()
		w.sweeper.Since = began.Add(-time.Hour)
		w.run(3 * time.Hour)
		if got := w.last().WatchedSince; got.After(began.Add(time.Minute)) || len(w.marks) > 5 {
			w.Errorf("watched since %v, %d marks", got.Sub(began), len(w.marks))
		}
	})
}

// A row of the future, or a clock that is ahead, does not show that a list goes on that
// stands still.
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
			if s := w.last(); s.Reading.Newest.After(stopped) || s.CompleteThrough.After(stopped) {
				w.Errorf("%v later: newest %v, complete through %v", time.Since(stopped), s.Reading.Newest, s.CompleteThrough)
			}
		}
		w.change(func() { w.add(1); w.rows[300].created = time.Now().Add(7 * time.Hour) })
		added := time.Now()
		w.run(time.Hour)
		if s := w.last(); s.Reading.Newest.Before(added) {
			w.Errorf("after another row: newest %v, want %v", s.Reading.Newest, added)
		}
	})
}
