package poll

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// Pages of one size cannot overlap. Rows that are removed meanwhile show in total_record.
func TestPagesOfAFixedSizeHideNoRow(t *testing.T) {
	for _, o := range []order{newestFirst, oldestFirst, unordered} {
		for _, size := range []int{9, 49, 50, 51, 120} {
			t.Run(fmt.Sprint(o, size), func(t *testing.T) {
				inWorld(t, o, 400, func(w *world) {
					w.fixed, w.maxRows = true, size
					pages := 0
					w.busy = func(u *upstream) {
						switch pages++; {
						case pages > 200:
						case pages%9 == 4:
							u.remove(3)
						case pages%9 == 6:
							u.add(5)
						case pages == 23:
							u.remove(2 * size)
						}
					}
					w.sweeps(5 * time.Second)
					w.sweeps(30 * time.Second)
					w.busy = nil
					w.sweeps(30 * time.Second)
					w.checkComplete(w.T, w.store)
					if calls := w.sweeps(5 * time.Second); len(calls) > len(w.rows)/size+5 {
						t.Errorf("a quiet sweep of %d rows asked for %q", len(w.rows), calls)
					}
				})
			})
		}
	}
}

// During a sweep pages become longer or shorter, or get a fixed size, while rows are added
// and removed.
func TestPagesThatChangeTheirSizeHideNoRow(t *testing.T) {
	type size struct {
		most  int
		fixed bool
	}
	for _, o := range []order{newestFirst, oldestFirst, unordered} {
		for name, sizes := range map[string][]size{
			"shorter":               {{most: 50}, {most: 31}, {most: 7}},
			"longer":                {{most: 7}, {most: 31}, {}},
			"shorter and longer":    {{}, {most: 13}, {most: 44}, {most: 12}, {}},
			"longer than requested": {{most: 20}, {most: 80, fixed: true}, {most: 50}},
			"of a fixed size":       {{most: 50, fixed: true}, {most: 30, fixed: true}, {most: 70, fixed: true}},
		} {
			t.Run(fmt.Sprint(o, " ", name), func(t *testing.T) {
				inWorld(t, o, 400, func(w *world) {
					pages := 0
					w.busy = func(u *upstream) {
						if pages++; pages > 200 {
							return
						}
						now := sizes[pages/3%len(sizes)]
						u.maxRows, u.fixed = now.most, now.fixed
						switch {
						case pages%7 == 2:
							u.remove(2)
						case pages%7 == 5:
							u.add(4)
						}
					}
					w.sweeps(5 * time.Second)
					w.sweeps(30 * time.Second)
					w.busy = nil
					w.sweeps(30 * time.Second)
					w.checkComplete(w.T, w.store)
				})
			})
		}
	}
}

// When more rows were added or removed than a page has, the place is found again close by:
// the sweep neither begins again nor goes back far, however often that happens.
func TestALostPlaceIsFoundAgainCloseBy(t *testing.T) {
	drop := func(u *upstream, n int) { // the newest
		at := len(u.rows) - n
		u.gone, u.rows, u.shown = append(u.gone, u.rows[at:]...), u.rows[:at:at], nil
	}
	for name, c := range map[string]struct {
		change func(u *upstream)
		most   int // pages of one sweep of a log of 50 pages
	}{
		"rows are added":   {func(u *upstream) { u.add(70) }, 85},
		"rows are removed": {func(u *upstream) { drop(u, 25) }, 85},
		"rows are removed and the total is wrong": {func(u *upstream) {
			if drop(u, 25); len(u.calls) < 30 {
				u.wrong += 100
			}
		}, 120},
		"many rows are removed": {func(u *upstream) { drop(u, 90) }, 85},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, newestFirst, 1000, func(w *world) {
				w.poller = w.upstream.poller(w.T, w.sink, 20)
				w.busy = func(u *upstream) {
					if len(u.calls)%9 == 8 {
						c.change(u)
					}
				}
				ctx, stop := context.WithTimeout(w.Context(), time.Minute)
				defer stop()
				w.poller.Lag = func(time.Duration) { stop() }
				if err := w.poller.Run(ctx); err != nil {
					w.Fatal(err)
				}
				if n := len(w.calls); n > c.most {
					w.Errorf("%d pages were read, want at most %d: %q", n, c.most, w.calls)
				}
				w.busy = nil
				w.sweeps(10 * time.Second)
				w.checkComplete(w.T, w.store)
			})
		})
	}
}

// The end of a log that lists the oldest rows first has grown by eighty pages.
func TestAWalkGoesBackFromTheEndInLongerAndLongerSteps(t *testing.T) {
	inWorld(t, oldestFirst, 200, func(w *world) {
		w.poller = w.upstream.poller(w.T, w.sink, 30)
		w.sweeps(5 * time.Second)
		w.add(2400)
		w.calls = nil
		ctx, stop := context.WithTimeout(w.Context(), time.Minute)
		defer stop()
		w.poller.Sink = &sink{store: w.store}
		w.poller.Lag = func(time.Duration) { stop() }
		if err := w.poller.Run(ctx); err != nil {
			w.Fatal(err)
		}
		if n := len(w.calls); n > 150 {
			w.Errorf("%d pages were read, want at most 150", n)
		}
		w.checkComplete(w.T, w.store)
	})
}
