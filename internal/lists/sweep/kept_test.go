package sweep

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
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
			longer := time.Now().Add(14 * time.Hour)
			run := func(d time.Duration) {
				w.sink = &sink{store: w.store}
				w.sweeper.Sink = aged{w.sink, longer}
				ctx, stop := context.WithTimeout(t.Context(), d)
				defer stop()
				w.sink.stop = stop
				w.sweeper.Run(ctx)
			}
			run(12 * time.Hour) // all rows are older than age by now
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
