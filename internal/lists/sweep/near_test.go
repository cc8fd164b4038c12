package sweep

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"errand/internal/sandbox/devkit/inshort"
)

// A row that may change for days is published once, though the events with its state are gone.
func TestAStateThatAgedOutIsNotPublishedAgain(t *testing.T) {
	if inshort.Asked(t) {
		return // a quarter of a million rows, for two days
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, NewestFirst, 100)
		w.age = 24 * time.Hour
		w.sweeper.Limit = 1000
		n, began, added := len(w.rows), time.Now(), false
		w.busy = func(l *list) { // as many rows as are forgotten at once come, and go an hour later
			switch since := time.Since(began); {
			case !added && since > 5*time.Minute:
				added = true
				for range maxPart {
					l.made++
					l.rows = append(l.rows, &row{key: l.made, created: time.Now(), states: 1, final: true})
				}
				l.shown = nil
			case since > time.Hour && len(l.rows) > n:
				l.rows, l.shown = l.rows[:n], nil
			}
		}
		w.run(50 * time.Hour)
		w.check(time.Time{})
	})
}

// A recent row that changes is published within two minutes, also by a poller that took over since it was made, from a list that
// shows its oldest rows first, and where pages join only by assumption.
func TestARecentChangeIsPublishedSoonAfterATakeover(t *testing.T) {
	for _, o := range []Order{NewestFirst, oldestFirst} {
		for _, fixed := range []bool{false, true} {
			t.Run(fmt.Sprintf("order %d, fixed pages %t", o, fixed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, o, 500)
					w.sweeper.Interval, w.sweeper.Recent, w.sweeper.RoundEvery, w.sweeper.Pace = 30*time.Second, time.Hour, 24*time.Hour, 2
					w.sweeper.Overlap = 15 * time.Minute
					if fixed {
						w.sweeper.Limit, w.maxRows, w.fixed = 25, 25, true
					}
					var changing *row
					var made, shown time.Time
					began := time.Now()
					w.busy = func(l *list) {
						switch {
						case changing == nil && time.Since(began) > 2*time.Hour:
							l.add(1)
							changing, made = l.rows[len(l.rows)-1], time.Now()
							changing.final = false
							l.add(203) // behind it
						case changing != nil && changing.states == 1 && time.Since(made) > 30*time.Minute:
							changing.states = 2
						}
					}
					w.sink.onSwept = func(time.Time) {
						if changing != nil && changing.states == 2 && shown.IsZero() && w.told[changing.id(2)] > 0 {
							shown = time.Now()
						}
					}
					w.run(2*time.Hour + 10*time.Minute)
					w.run(2 * time.Hour)
					if took := shown.Sub(made) - 30*time.Minute; shown.IsZero() || took > 2*time.Minute {
						t.Errorf("the change was published after %v", took)
					}
				})
			})
		}
	}
}
