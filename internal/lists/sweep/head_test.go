package sweep

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"errand/pkg/clients"
)

// blind takes the leadership, and cannot read what was published, as a poller without the secret of the records.
type blind struct{ *sink }

func (d *blind) Learn(context.Context, func(Stored)) error {
	return errors.New("it has keys of an unknown secret")
}

// A poller that cannot begin lets another one lead.
func TestOneThatCannotBeginLetsAnotherOneLead(t *testing.T) {
	inOrderedWorld(t, 100, func(w *world) {
		ctx, stop := context.WithTimeout(w.Context(), 10*time.Minute)
		defer stop()
		var all sync.WaitGroup
		broken := w.list.sweeper(nil, 50)
		broken.Sink = &blind{&sink{store: w.store, stop: stop}}
		all.Go(func() { broken.Run(ctx) })
		time.Sleep(time.Second)
		healthy := w.list.sweeper(&sink{store: w.store, stop: stop}, 50)
		all.Go(func() { healthy.Run(ctx) })
		all.Wait()
		if n := len(w.events); n != 100 {
			t.Errorf("%d of 100 rows are published in ten minutes; the healthy one says %q, the broken one %q", n, healthy.Fault(), broken.Fault())
		}
	})
}

// unreachable is a list that its poller alone cannot read for a while.
type unreachable struct {
	*list
	down atomic.Bool
}

func (l *unreachable) Page(ctx context.Context, number, limit int) (Page[int], error) {
	if l.down.Load() {
		return Page[int]{}, &clients.Error{Fate: clients.Busy}
	}
	return l.list.Page(ctx, number, limit)
}

// A leader that lets another one lead says so before the other one leads: both never say that they do.
func TestOneThatCannotReadLeadsNoLongerBeforeAnotherOneDoes(t *testing.T) {
	inOrderedWorld(t, 100, func(w *world) {
		ctx, stop := context.WithTimeout(w.Context(), 20*time.Minute)
		defer stop()
		var all sync.WaitGroup
		var leads [2]atomic.Bool
		var sweepers [2]*Sweeper[int]
		lists := [2]*unreachable{{list: w.list}, {list: w.list}}
		for i, l := range lists {
			s := w.list.sweeper(&sink{store: w.store, stop: stop}, 50)
			sweepers[i], s.List = s, l
			s.Leading = func(yes bool) {
				if leads[i].Store(yes); yes && leads[1-i].Load() {
					t.Errorf("%d leads while the other one says that it does", i)
				}
			}
			all.Go(func() { s.Run(ctx) })
			time.Sleep(time.Minute)
		}
		for i := range 2 { // first one of them, then the other one
			lists[i].down.Store(true)
			time.Sleep(3 * time.Minute)
			if leads[i].Load() || !leads[1-i].Load() {
				t.Errorf("%d cannot read: it leads %t, the other one %t", i, leads[i].Load(), leads[1-i].Load())
			}
			if sweepers[i].Fault() == "" || sweepers[i].Upstream() != sweepers[i].Fault() {
				t.Errorf("%d cannot read, and says %q, of the service %q", i, sweepers[i].Fault(), sweepers[i].Upstream())
			}
			lists[i].down.Store(false)
			time.Sleep(time.Minute)
		}
		lists[0].down.Store(true)
		lists[1].down.Store(true)
		time.Sleep(3 * time.Minute)
		lists[0].down.Store(false)
		lists[1].down.Store(false)
		time.Sleep(3 * time.Minute)
		if leads[0].Load() == leads[1].Load() {
			t.Errorf("both can read again: the first leads %t, so does the other one", leads[0].Load())
		}
		stop()
		all.Wait()
	})
}

// A poller whose clock was a year ahead has left a mark. The one that comes after it, whose clock is right, publishes what is new.
func TestAMarkByAWrongClockHidesNoRows(t *testing.T) {
	inOrderedWorld(t, 100, func(w *world) {
		w.run(time.Minute)
		m := w.marks[len(w.marks)-1]
		ahead := 365 * 24 * time.Hour // a mark of then: events are kept for 30 days
		m.At, m.Since = m.At.Add(ahead), m.At.Add(ahead-708*time.Hour)
		w.store.mu.Lock()
		w.marks = append(w.marks, m)
		w.store.mu.Unlock()
		w.change(func() { w.add(30) })
		time.Sleep(time.Minute) // until it is started again
		w.run(10 * time.Minute)
		w.check(time.Time{})
	})
}

// The service removes a mailing, most of the newest hundred rows. New rows are published within an interval still.
func TestNewRowsAreInTimeWhereTheAnchorIsGone(t *testing.T) {
	inOrderedWorld(t, 0, func(w *world) {
		w.change(func() {
			w.add(200_000)
			for i, r := range w.rows {
				r.created, r.final = r.created.Add(-time.Duration(len(w.rows)-i)*time.Minute), true
			}
		})
		w.sweeper.Limit, w.latency = 100, 90*time.Millisecond
		var fresh []*row
		go func() {
			time.Sleep(30 * time.Minute)
			w.change(func() { w.rows = w.rows[:len(w.rows)-60] })
			for range 60 {
				time.Sleep(10 * time.Second)
				w.change(func() { w.add(1); fresh = append(fresh, w.rows[len(w.rows)-1]) })
			}
		}()
		w.run(45 * time.Minute)
		at := map[ID]time.Time{}
		for _, e := range w.events {
			at[e.ID] = e.At
		}
		longest := time.Duration(0)
		for _, r := range fresh {
			longest = max(longest, at[r.id(1)].Sub(r.created))
		}
		if longest > 15*time.Second {
			w.Errorf("a new row was published after %v, in a log of 200,000", longest)
		}
	})
}

// The scan that finds another anchor begins at once: the next one may be a day away, and the mark stands still until then.
func TestTheMarkGoesOnSoonWhereTheAnchorIsGone(t *testing.T) {
	inOrderedWorld(t, 4000, func(w *world) {
		w.sweeper.Limit, w.sweeper.RoundEvery = 100, 24*time.Hour
		go func() {
			time.Sleep(30 * time.Minute)
			w.change(func() { w.rows = w.rows[:len(w.rows)-60] })
			for range 30 {
				time.Sleep(time.Minute)
				w.change(func() { w.add(1) })
			}
		}()
		w.run(61 * time.Minute)
		if behind := time.Since(w.marks[len(w.marks)-1].CompleteThrough); behind > 10*time.Minute {
			w.Errorf("the mark is %v behind half an hour after the anchor was removed", behind)
		}
	})
}

// The service removes the oldest rows of a list that shows them first, many at once. What comes then is published by the next scan.
func TestAListThatDropsItsOldestRowsAtOnceIsReadOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGrowing(oldestFirst, 1, 5*time.Millisecond)
		g.rate, g.changing = func(time.Duration) float64 { return 1 }, 0
		g.rows = make([]growingRow, 40_000)
		for i := range g.rows {
			g.rows[i].created = g.began.Add(time.Duration(i-len(g.rows)) * time.Minute)
		}
		go func() {
			time.Sleep(20 * time.Minute)
			g.mu.Lock()
			g.dropped = 10_000
			g.mu.Unlock()
		}()
		ctx, stop := context.WithTimeout(t.Context(), 2*time.Hour)
		defer stop()
		s := &store{told: map[ID]int{}}
		k := &sink{store: s, stop: stop}
		var mark Mark
		k.onMark = func(m Mark) { mark = m }
		g.sweeper(k, 100, zerolog.Nop()).Run(ctx)
		at := map[ID]time.Time{}
		for _, e := range s.events {
			at[e.ID] = e.At
		}
		late, longest := 0, time.Duration(0)
		for n, r := range g.rows[40_000:] {
			took := time.Since(r.created)
			if published, ok := at[growingID(n+40_000, 1)]; ok {
				took = published.Sub(r.created)
			}
			if longest = max(longest, took); took > 10*time.Minute {
				late++
			}
		}
		t.Logf("the mark is %v old, and covers what was made until %v ago", time.Since(mark.At), time.Since(mark.CompleteThrough))
		if late > 0 || time.Since(mark.CompleteThrough) > 20*time.Minute { // two scans, and Overlap
			t.Errorf("%d rows of %d were published more than ten minutes after they came, one %v", late, len(g.rows)-40_000, longest)
		}
	})
}

// Rows that are added in front with times long before the watermark's, as when the service's clock was set back or a part of its
// log was late, are published as soon as all others.
func TestRowsInFrontWithTimesLongPastAreReadUpToTheAnchor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, NewestFirst, 10_000)
		added := time.Time{}
		w.sink.onSwept = func(time.Time) {
			w.list.mu.Lock()
			defer w.list.mu.Unlock()
			switch {
			case added.IsZero() && len(w.told) == 10_000 && time.Since(w.rows[9999].created) > 25*time.Hour:
				added = time.Now()
				w.add(400)
				for _, r := range w.rows[10_000:] {
					r.created, r.final = r.created.Add(-26*time.Hour), true
				}
			case !added.IsZero() && time.Since(added) > 12*time.Second:
				w.sink.stop()
			}
		}
		w.run(3 * time.Hour)
		w.check(time.Time{})
	})
}
