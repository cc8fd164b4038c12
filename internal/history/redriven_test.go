package history_test

import (
	"context"
	"fmt"
	"testing"

	"errand/internal/history"
	"errand/internal/history/historytest"
	"errand/pkg/messages"
)

// behind is a log of which the started events are read from a replica that has none yet.
type behind struct{ *historytest.Log }

func (l behind) Last(ctx context.Context, op messages.Operation, filter string) (history.Entry, error) {
	if filter == op.Subject(messages.Started, "r1") {
		return history.Entry{}, nil
	}
	return l.Log.Last(ctx, op, filter)
}

// What a person accepted holds for no call after the one that it was said of, also where it is
// not seen that there was one: how many were made is in the deferral itself.
func TestARedriveHoldsUntilACallOfUnknownFate(t *testing.T) {
	for attempt, again := range map[int]bool{1: true, 2: false} {
		s := &historytest.Log{}
		s.Put("mandate.enroll.reopened.r1", []byte(`{"attempt":1,"by":"ann","was":{"state":"uncertain"},"after_unknown":true,"fingerprint":"f"}`))
		if attempt > 1 {
			s.Put("mandate.enroll.started.r1", []byte(`{"attempt":2,"fingerprint":"f"}`))
		}
		s.Put("mandate.enroll.deferred.r1", fmt.Appendf(nil, `{"attempt":%d,"reason":"no_answer","after_unknown":true}`, attempt))
		for _, l := range []history.Log{s, behind{s}} {
			if p, err := worker(l, "f").Read(t.Context()); err != nil || p.Again != again {
				t.Errorf("%d calls, %T: it holds: %v, %v, want %v", attempt, l, p.Again, err, again)
			}
		}
	}
}
