package deliveries

import (
	"context"
	"slices"
	"testing"
	"time"

	"errand/pkg/clients/mail"
	"errand/pkg/messages"
)

// A row of the call whose time is wrong leaves a doubt at least.
func TestARowWhoseTimesContradictEachOtherLeavesADoubt(t *testing.T) {
	const to = "x@example.test"
	for name, off := range map[string]time.Duration{"eight hours behind": -8 * time.Hour, "eight hours ahead": 8 * time.Hour, "years ahead": 1 << 58, "years behind": -1 << 59} {
		t.Run(name, func(t *testing.T) {
			inScenario(t, func(s *scenario) {
				s.sends("before", "b@example.test")
				s.loses("r", to)
				r := s.row(to, 500*time.Millisecond, messages.Delivered)
				r.created = r.created.Add(off)
				s.run(time.Minute)
				s.run(20 * time.Hour)
				if got := s.concluded("r", 1); slices.Contains(got, "not_sent, 0 of 1") {
					t.Errorf("concluded %q of a call that was carried out", got)
				}
			})
		})
	}
}

// A Date that is hours off moves no row away from its call, and makes no log go on.
func TestADateThatIsHoursOffProvesNothing(t *testing.T) {
	const to = "x@example.test"
	for name, off := range map[string]time.Duration{"behind": -3 * time.Hour, "ahead": 3 * time.Hour} {
		for _, sent := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				inScenario(t, func(s *scenario) {
					ahead := off
					s.config.Read = func(context.Context, int, int) (mail.LogPage, error) {
						return mail.LogPage{Date: time.Now().Add(ahead).Truncate(time.Second)}, nil
					}
					s.restart()
					look := func(d time.Duration) {
						for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(time.Minute) {
							if _, err := s.log.Page(s.Context(), 1, 100); err != nil {
								t.Fatal(err)
							}
							s.sweep()
						}
					}
					s.loses("r", to)
					if sent {
						s.row(to, 500*time.Millisecond, messages.Delivered)
					}
					look(5 * time.Hour)
					if got := s.concluded("r", 1); slices.Contains(got, "not_sent, 0 of 1") {
						t.Errorf("sent %t: concluded %q by such a clock", sent, got)
					}
					ahead = 0
					look(5 * time.Hour)
					if got := s.concluded("r", 1); slices.Contains(got, "not_sent, 0 of 1") == sent {
						t.Errorf("sent %t: concluded %q when it was right again", sent, got)
					}
				})
			})
		}
	}
}

// Earlier versions note a row that is unique like one that is exact, and their watermarks
// do not say since when the log was watched.
func TestAnEventOfAnEarlierVersionIsADoubt(t *testing.T) {
	inScenario(t, func(s *scenario) {
		s.loses("r", "x@example.test")
		e := s.log.eventFor(rowsOf([]mail.Entry{s.row("x@example.test", -10*time.Minute, messages.Delivered).entry()}, time.Now())[0], time.Now(), 0)
		e.ID, e.Body.(*messages.DeliveryBody).Recipient = "r", "1.0"
		s.events = append(s.events, stored{e, time.Now()}, stored{messages.Event{Operation: messages.Log, State: messages.Marked,
			Body: &messages.Watermark{CompleteThrough: now()}}, time.Now()})
		time.Sleep(time.Minute)
		upgrade := time.Now()
		for range 2 {
			s.run(time.Hour)
			s.events = append(s.events, stored{messages.Event{Operation: messages.Log, State: messages.Marked,
				Body: &messages.Watermark{CompleteThrough: now(), WatchedSince: &messages.Time{Time: upgrade}}}, time.Now()})
		}
		if got, want := s.concluded("r", 1), []string{"unclear, 0 of 1"}; !slices.Equal(got, want) {
			t.Errorf("concluded %q, want %q", got, want)
		}
	})
}

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
		if got := s.concluded("r", 1); slices.Contains(got, "not_sent, 0 of 1") {
			t.Errorf("concluded %q of a call that was carried out", got)
		}
	})
}
