package deliveries

import (
	"testing"
	"time"

	"errand/pkg/messages"
)

func TestTheOffsetOfAClockIsMeasured(t *testing.T) {
	at := time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)
	observe := func(c *clock, ahead, took time.Duration, n int) {
		for i := range n {
			asked := at.Add(time.Duration(i) * 1130 * time.Millisecond)
			c.observe(asked, asked.Add(took/2+ahead).Truncate(time.Second), asked.Add(took))
		}
	}
	for name, c := range map[string]struct {
		ahead, took time.Duration
		n           int
		want        time.Duration
		within      time.Duration
	}{
		"no answer":       {},
		"the same":        {took: 100 * time.Millisecond, n: 20},
		"nearly the same": {ahead: 300 * time.Millisecond, took: 400 * time.Millisecond, n: 1},
		"ahead":           {ahead: 4 * time.Second, took: 100 * time.Millisecond, n: 20, want: 4 * time.Second, within: 200 * time.Millisecond},
		"behind":          {ahead: -time.Minute, took: 100 * time.Millisecond, n: 20, want: -time.Minute, within: 200 * time.Millisecond},
		"one answer":      {ahead: 4 * time.Second, took: time.Second, n: 1, want: 4 * time.Second, within: time.Second},
	} {
		var k clock
		observe(&k, c.ahead, c.took, c.n)
		k.observe(at, time.Time{}, at.Add(time.Hour)) // an answer without a Date
		if got := k.offset(); (got - c.want).Abs() > c.within {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		observe(&k, time.Hour, 100*time.Millisecond, 3) // the clock was set
		if got := k.offset(); (got - time.Hour).Abs() > time.Second {
			t.Errorf("%s, then an hour ahead: %v", name, got)
		}
	}
}

// A row whose own time is long past may be of a call that was made a moment ago: a poller at
// work learns of that call before it matches the row.
func TestARowThatLooksOldIsMatchedToTheLatestCalls(t *testing.T) {
	inScenario(t, func(s *scenario) {
		s.sends("before", "b@example.test")
		s.sweep()
		s.loses("r", "x@example.test")
		r := s.row("x@example.test", 500*time.Millisecond, messages.Delivered)
		r.created = r.created.Add(-48 * time.Hour)
		for range 3 * 12 {
			time.Sleep(5 * time.Minute)
			s.sweep()
		}
		if got := s.eventsOf(messages.Delivery, messages.Delivered, "r"); len(got) != 1 {
			t.Errorf("%d rows are of the call, want 1", len(got))
		}
	})
}
