package sweep

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"errand/internal/sandbox/devkit/inshort"
)

// aged is a sink that knows since when events are kept by nothing but the age that they may have, which people change.
type aged struct {
	*sink
	longer time.Time // from then on
}

func (d aged) Kept(context.Context) (time.Time, error) {
	if time.Now().Before(d.longer) {
		return time.Now().Add(-30 * time.Hour), nil
	}
	return time.Now().Add(-1000 * time.Hour), nil
}

// The time since when rows count as published never goes back: rows whose events are gone are not published again where events may
// become older, neither by the poller that runs nor by the next one.
func TestSinceWhenRowsCountAsPublishedNeverGoesBack(t *testing.T) {
	for _, restarts := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, NewestFirst, 300)
			w.sweeper.Interval, w.sweeper.Logger = time.Minute, zerolog.Nop()
			longer := time.Now().Add(14*time.Hour + watchOpen)
			run := func(d time.Duration) {
				w.sink = &sink{store: w.store}
				w.sweeper.Sink = aged{w.sink, longer}
				ctx, stop := context.WithTimeout(t.Context(), d)
				defer stop()
				w.sink.stop = stop
				w.sweeper.Run(ctx)
			}
			run(12 * time.Hour)
			time.Sleep(watchOpen) // all rows are older than age by now, and not watched
			w.store.mu.Lock()
			w.events, w.dropped = nil, 300
			w.store.mu.Unlock()
			if restarts {
				longer = time.Now()
			}
			run(12 * time.Hour)
			w.check(time.Time{})
		})
	}
}

// An entry that the list shows in two rows, one of which may change, is published once in each of its states though the events are
// gone before it is no longer watched; whichever of the two comes first, and on whichever page.
func TestAnEntryOfTwoRowsIsPublishedOnceThoughItsEventsAreGone(t *testing.T) {
	for _, c := range []struct{ between, open int }{{0, 0}, {0, 1}, {70, 1}} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, NewestFirst, 100)
			w.age = 24 * time.Hour
			w.sweeper.Interval = 10 * time.Minute
			w.change(func() {
				w.add(2 + c.between)
				pair := [2]*row{w.rows[100], w.rows[101+c.between]}
				open, end := pair[c.open], pair[1-c.open]
				open.final, end.final = false, true
				end.key, end.states = open.key, 2
			})
			for range 5 {
				w.run(25 * time.Hour)
				w.check(time.Time{})
			}
		})
	}
}

// A row that may change at any age is known for as long as it is listed, however seldom it is read: of one whose event is gone the next
// state is published.
func TestARowWhoseEventIsGoneChangesDaysLater(t *testing.T) {
	rounds := []time.Duration{24 * time.Hour, 8 * 24 * time.Hour}
	for _, every := range rounds[:inshort.Choose(t, len(rounds), 1)] {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, NewestFirst, 300)
			w.age = 48 * time.Hour
			w.sweeper.Interval, w.sweeper.Recent, w.sweeper.RoundEvery, w.sweeper.Pace = 30*time.Second, time.Hour, every, 2
			for i, r := range w.rows {
				r.final = i != 7
			}
			time.Sleep(watchOpen)
			began, changed := time.Now(), false
			w.busy = func(l *list) {
				if !changed && time.Since(began) > 60*time.Hour {
					l.rows[7].states, changed = 2, true
				}
			}
			w.run(60*time.Hour + every)
			w.check(time.Time{})
		})
	}
}
