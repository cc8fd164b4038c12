package sweep

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"errand/pkg/clients"
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
	fails  func(rows []Row[int]) error
	resets int
}

func (f *failing) Publish(ctx context.Context, rows []Row[int]) func() (int, error) {
	if err := f.fails(rows); err != nil {
		return Done(0, err)
	}
	return f.sink.Publish(ctx, rows)
}

func (f *failing) Reset() {
	f.resets++
	f.sink.Reset()
}

var errNotStored = errors.New("not stored")

// All is learned again when a batch shows that events are gone, whatever comes of the one behind it.
func TestAResetIsSeenWhateverFailsBehindIt(t *testing.T) {
	for _, first := range []error{ErrReset, ErrBehind, errNotStored} {
		inOrderedWorld(t, 200, func(w *world) {
			left := []error{nil, first, ErrReset} // the head's, and two of the scan's
			if errors.Is(first, ErrReset) {
				left[2] = errNotStored
			}
			sink := &failing{sink: &sink{store: w.store}, fails: func([]Row[int]) (err error) {
				if len(left) > 0 {
					err, left = left[0], left[1:]
				}
				return err
			}}
			w.sweeper.Sink = sink
			ctx, stop := context.WithTimeout(w.Context(), 10*time.Minute)
			defer stop()
			w.sweeper.Run(ctx)
			if sink.resets != 1 {
				w.Errorf("after %v: learned all again %d times, want 1", first, sink.resets)
			}
			w.check(time.Time{})
		})
	}
}

// The end of a row that is older than what is published at all is published, though it cannot be stored at first.
func TestTheEndOfAnOldRowIsPublishedThoughItsPageFails(t *testing.T) {
	for _, err := range []error{errNotStored, ErrBehind} {
		inOrderedWorld(t, 10, func(w *world) {
			w.sweeper.Since = time.Now().Add(-time.Hour)
			row, failed := w.rows[5], false
			row.final = false
			w.sweeper.Sink = &failing{sink: &sink{store: w.store}, fails: func(rows []Row[int]) error {
				if row.final && !failed {
					failed = true
					return err
				}
				return nil
			}}
			time.AfterFunc(10*time.Minute, func() { w.change(func() { row.states, row.final = 2, true }) })
			ctx, stop := context.WithTimeout(w.Context(), 30*time.Minute)
			defer stop()
			w.sweeper.Run(ctx)
			if !failed || w.told[row.id(2)] != 1 {
				w.Errorf("after %v (%t): the last state was published %d times", err, failed, w.told[row.id(2)])
			}
		})
	}
}

// A sweep whose rows could not be stored fails, also when that shows while others have rows published.
func TestASweepWhoseRowsAreNotStoredFailsWhoeverLearnsIt(t *testing.T) {
	inOrderedWorld(t, 200, func(w *world) {
		var left atomic.Int64 // pages until one is not stored
		w.sweeper.Sink = &failing{sink: &sink{store: w.store, onSwept: w.nothingHidden}, fails: func([]Row[int]) error {
			if left.Add(-1) == 0 {
				return errNotStored
			}
			return nil
		}}
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

// While a page takes its time, the rows of the one before are published, and those that others see.
func TestAPageThatTakesItsTimeDelaysNoOtherRows(t *testing.T) {
	inOrderedWorld(t, 200, func(w *world) {
		w.sweeper.Sink = &sink{store: w.store}
		refused := make(chan struct{})
		w.answer = func(number, _ int) error {
			if len(w.rows) == 200 || number == 1 {
				return nil
			}
			close(refused)
			w.answer = nil
			return &clients.Error{Fate: clients.Busy, RetryAfter: 9 * time.Second}
		}
		time.AfterFunc(10*time.Minute, func() { w.change(func() { w.add(120) }) })
		ctx, stop := context.WithTimeout(w.Context(), time.Hour)
		go func() {
			defer stop()
			<-refused
			soon, end := context.WithTimeout(ctx, time.Second)
			defer end()
			other := w.newest(100)[:1]
			if err := w.sweeper.Publish(soon, other); err != nil {
				w.Error("another row:", err)
			}
			<-soon.Done()
			w.store.mu.Lock()
			defer w.store.mu.Unlock()
			for _, row := range append(w.newest(50), other...) {
				if w.told[row.ID] != 1 {
					w.Errorf("%x was published %d times", row.ID, w.told[row.ID])
				}
			}
		}()
		w.sweeper.Run(ctx)
	})
}
