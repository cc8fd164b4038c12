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
