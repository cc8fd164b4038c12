package deliveries

import (
	"context"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"errand/internal/lists/sweep"
	"errand/internal/sandbox/devkit/inshort"
	"errand/pkg/messages"
)

// Rows that were made before the first start, or before POLL_SINCE, may not be published: that
// there is none says nothing. The log's clock decides which those are.
func TestNothingIsConcludedFromRowsThatAreNotPublished(t *testing.T) {
	for name, c := range map[string]struct {
		call  time.Duration // after the first start
		ahead time.Duration // of the service's clock
		want  []int         // conclusions: if it was sent, and if it was not
	}{
		"before the first start":               {call: -2 * time.Hour, want: []int{0, 0}},
		"after it":                             {call: 10 * time.Minute, want: []int{1, 1}},
		"after it, by a clock that is behind":  {call: time.Minute, ahead: -5 * time.Minute, want: []int{0, 0}},
		"long after it, by such a clock":       {call: time.Hour, ahead: -5 * time.Minute, want: []int{1, 1}},
		"before it, by a clock that is ahead":  {call: -time.Minute, ahead: 5 * time.Minute, want: []int{1, 0}},
		"just after it, by a clock just right": {call: 5 * time.Second, want: []int{1, 1}},
	} {
		if inshort.Asked(t) && c.ahead == 0 && c.call < 0 {
			continue
		}
		for i, sent := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					m := newModel(t, "plain", 0)
					m.service.order, m.service.ahead, m.service.late = sweep.NewestFirst, c.ahead, 0
					time.Sleep(8 * time.Hour)
					for age := range 40 {
						m.foreign(m.random, time.Now().Add(-time.Duration(age)*10*time.Minute))
					}
					start := time.Now().Add(3 * time.Hour)
					m.days.since = func() time.Time { return time.Now() }
					ctx, stop := context.WithDeadline(t.Context(), start.Add(3*time.Hour))
					defer stop()
					m.twins.Go(func() {
						time.Sleep(time.Until(start))
						m.poll(ctx, m.streams.poller(-1, stop, time.Millisecond), 50)
					})
					m.twins.Go(func() {
						time.Sleep(time.Until(start.Add(c.call)))
						r := m.newSending("r", rand.New(rand.NewPCG(1, 1))) // m.random is at work below
						b := &sendingBatch{number: 1, to: []string{"x@example.test"}}
						r.batches, r.onUnknown, r.from = []*sendingBatch{b}, messages.OnUnknownConclude, "shop@example.test"
						call := &realCall{from: r.from, to: b.to, begin: time.Now(), until: time.Now().Add(callTakes), ended: time.Now().Add(time.Second)}
						r.started(call.begin)
						r.made(r.id, 1, call)
						r.record(b, call)
						if sent {
							r.reach(b, call, time.Now().Add(time.Second/2))
						}
						time.Sleep(time.Second)
						r.lost(b, messages.ReasonNoAnswer)
					})
					for ctx.Err() == nil {
						time.Sleep(5 * time.Minute)
						m.foreign(m.random, time.Now())
					}
					m.twins.Wait()
					got := m.tally["accepted"] + m.tally["not_sent"]
					if got != c.want[i] {
						t.Errorf("sent %t: %d conclusions, want %d: %v", sent, got, c.want[i], m.tally)
					}
				})
			})
		}
	}
}
