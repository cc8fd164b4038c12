package deliveries

import (
	"context"
	"errors"
	"testing"
	"time"

	"errand/internal/lists/sweep"
	"errand/pkg/messages"
)

// restored is a store whose stream is another one than before, which it says once: everything is given again.
type restored struct {
	*store
	said bool
}

func (d *restored) Kept(ctx context.Context) (time.Time, error) {
	if d.said {
		return d.store.Kept(ctx)
	}
	d.said = true
	return time.Time{}, sweep.ErrReset
}

// What is read again is not of calls that were made again, of whose fate nothing is known: rows of a
// later message could be theirs.
func TestCallsThatAreReadAgainWhereAStreamWasRestoredAreTheSame(t *testing.T) {
	inScenario(t, func(s *scenario) {
		for _, id := range []string{"first", "second"} {
			s.sends(id, "x@example.test")
			time.Sleep(time.Minute)
		}
		s.row("x@example.test", time.Minute, messages.Delivered)
		accepted := 1
		s.started("third", 2, 2)
		s.calls("third", 1, 0, "y@example.test")
		s.consumer.put(messages.Batch, messages.Accepted, messages.BatchID("third", 1),
			&messages.BatchBody{Common: messages.Common{RequestID: "third", At: now()}, Batch: 1, Count: 1, Accepted: &accepted})
		s.learn()
		s.log.Store = &restored{store: s.log.Store.(*store)}
		if _, err := s.log.Kept(t.Context()); !errors.Is(err, sweep.ErrReset) {
			t.Fatal(err)
		}
		s.log.Reset() // as a sweeper does then
		s.learn()
		s.sweep()
		time.Sleep(2 * time.Minute)
		s.sweep()
		if got := s.eventsOf(messages.Delivery, messages.Delivered, "second"); len(got) != 1 {
			t.Errorf("%d rows are of the second message, want 1", len(got))
		}
		if r := s.log.calls.known("third"); r == nil || r.accepted != 1 {
			t.Errorf("the third message, half of which is sent, is %+v", r)
		}
		if got := s.summaries("second"); len(got) != 1 ||
			got[0] != "1 of 1: 1 delivered, 0 deferred, 0 bounced, 0 unknown, 0 queued, final true" {
			t.Errorf("summaries: %q", got)
		}
	})
}
