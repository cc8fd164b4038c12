package sweep

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// nothingHidden fails the test when a sweep says that every row was published up to a time and one was not.
func (w *world) nothingHidden(through time.Time) {
	w.list.mu.Lock()
	defer w.list.mu.Unlock()
	w.store.mu.Lock()
	defer w.store.mu.Unlock()
	missing := 0
	for _, r := range w.rows {
		if w.told[r.id(r.states)] == 0 && !r.created.After(through) {
			missing++
		}
	}
	if missing > 0 {
		w.Errorf("%v: %d rows were not published, which were made up to %v", time.Now(), missing, through)
	}
}

// newest are the newest rows as somebody who looks them up sees them.
func (w *world) newest(n int) (rows []Row[int]) {
	w.list.mu.Lock()
	defer w.list.mu.Unlock()
	for _, r := range w.rows[len(w.rows)-n:] {
		rows = append(rows, r.row())
	}
	return rows
}

// A page of rows that were all published otherwise says nothing of those behind it.
func TestRowsThatWerePublishedOtherwiseHideNoOthers(t *testing.T) {
	inOrderedWorld(t, 200, func(w *world) {
		w.sink.onSwept = w.nothingHidden
		go func() {
			time.Sleep(10 * time.Minute)
			for range 10 {
				time.Sleep(97 * time.Second)
				w.change(func() { w.add(120) })
				if err := w.sweeper.Publish(w.Context(), w.newest(50)); err != nil {
					w.Error(err)
				}
			}
		}()
		w.run(time.Hour)
		w.check(time.Time{})
	})
}

// failing is a sink that cannot store some pages.
type failing struct {
	*sink
	fails func() bool
}

func (f *failing) Publish(ctx context.Context, rows []Row[int]) func() (int, error) {
	if f.fails() {
		return func() (int, error) { return 0, errors.New("not stored") }
	}
	return f.sink.Publish(ctx, rows)
}

// A sweep whose rows could not be stored fails, also when that shows while others have rows published.
func TestASweepWhoseRowsAreNotStoredFailsWhoeverLearnsIt(t *testing.T) {
	inOrderedWorld(t, 200, func(w *world) {
		var left atomic.Int64 // pages until one is not stored
		w.sweeper.Sink = &failing{&sink{store: w.store, onSwept: w.nothingHidden}, func() bool { return left.Add(-1) == 0 }}
		ctx, stop := context.WithTimeout(w.Context(), 30*time.Minute)
		defer stop()
		var others sync.WaitGroup
		defer others.Wait()
		others.Go(func() {
			time.Sleep(10 * time.Minute)
			for range 5 {
				time.Sleep(97 * time.Second)
				w.change(func() { w.add(220) })
				left.Store(3)
				for range 5000 {
					_ = w.sweeper.Publish(ctx, nil)
					time.Sleep(2 * time.Millisecond)
				}
				if left.Load() > 0 {
					w.Error("no page was not stored")
				}
			}
		})
		w.sweeper.Run(ctx)
		w.check(time.Time{})
	})
}

// Who cannot read the list, and sees rows otherwise, has them published.
func TestRowsArePublishedWhoeverCannotReadTheList(t *testing.T) {
	inOrderedWorld(t, 200, func(w *world) {
		w.answer = func(int, int) error { return errors.New("away") }
		go func() {
			if err := w.sweeper.Publish(w.Context(), w.newest(10)); err != nil {
				w.Error(err)
			}
		}()
		w.run(10 * time.Minute)
		if len(w.told) != 10 {
			w.Errorf("%d rows were published of 10", len(w.told))
		}
		w.answer = nil
		w.run(10 * time.Minute)
		w.check(time.Time{})
	})
}
