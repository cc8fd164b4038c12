package deliveries

import (
	"testing"
	"time"

	"errand/pkg/messages"
)

// A correction may have other recipients than the contents that failed: rows are matched, and prove, by the new ones.
func TestAfterACorrectionRowsAreOfItsRecipients(t *testing.T) {
	inScenario(t, func(s *scenario) {
		s.started("r", 1, 1)
		s.calls("r", 1, 0, "old@example.test")
		s.ends("r", messages.Failed, 1, 1, 0, messages.Unsettled{Batch: 1, Count: 1, State: messages.Refused})
		time.Sleep(time.Hour)
		s.started("r", 2, 1)
		began := time.Now()
		s.calls("r", 1, 0, "first@example.test", "second@example.test")
		s.ends("r", messages.Uncertain, 2, 1, 0, messages.Unsettled{Batch: 1, Count: 2, State: messages.Uncertain})
		l := s.newLog()
		at := began.Add(500 * time.Millisecond)
		if got := s.matchOf(l, "second@example.test", "", at); got != "exact r 1.1" {
			t.Errorf("to one of the new recipients: %q", got)
		}
		if got := s.matchOf(l, "old@example.test", "", at); got != "none" {
			t.Errorf("to the old recipient: %q", got)
		}
		s.started("sender", 1, 1)
		s.callsFrom("shpo@example.test", "sender", 1, 0, "to@example.test")
		s.ends("sender", messages.Failed, 1, 1, 0, messages.Unsettled{Batch: 1, Count: 1, State: messages.Refused})
		time.Sleep(time.Hour)
		s.started("sender", 1, 1)
		began = time.Now()
		s.callsFrom("shop@example.test", "sender", 1, 0, "to@example.test")
		s.ends("sender", messages.Accepted, 1, 1, 1)
		if got := s.matchOf(s.newLog(), "to@example.test", "shop@example.test", began.Add(500*time.Millisecond)); got != "exact sender 1.0" {
			t.Errorf("by the new sender: %q", got)
		}
		l = s.newLog()
		l.note(learnedEvent("r", "1.1", messages.Delivered))
		if e, ok := s.resolution(l, "r", time.Now()); !ok {
			t.Errorf("a row of its call does not prove it: %+v", e)
		}
	})
}
