package history_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"errand/internal/history"
	"errand/internal/history/historytest"
	"errand/pkg/messages"
)

// behind is a log of which the started events are read from a replica that has none yet, so many
// times; below 0: always.
type behind struct {
	*historytest.Log
	times int
}

func (l *behind) Last(ctx context.Context, op messages.Operation, filter string) (history.Entry, error) {
	if filter == op.Subject(messages.Started, "r1") && l.times != 0 {
		l.times--
		return history.Entry{}, nil
	}
	return l.Log.Last(ctx, op, filter)
}

// A replica shows that a request was deferred, and another one not yet that it was started: by
// that event it is known which contents the id has, and how a message was cut into batches.
func TestWhatWasDeferredIsKnownThoughAReplicaLagsBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &historytest.Log{}
		s.Put("mandate.enroll.started.r1", []byte(`{"attempt":1,"fingerprint":"f","order_number":"o"}`))
		s.Put("mandate.enroll.deferred.r1", []byte(`{"attempt":1,"reason":"busy"}`))
		if p, err := worker(&behind{s, 3}, "f").Read(t.Context()); err != nil || p.Started == nil {
			t.Errorf("its own contents: %+v, %v", p, err)
		}
		if _, err := worker(&behind{s, 3}, "other").Read(t.Context()); !isConflict(err) {
			t.Errorf("other contents: %v, want a conflict", err)
		}
		if p, err := worker(&behind{s, -1}, "f").Read(t.Context()); err != nil || p.Started != nil { // it may be purged
			t.Errorf("where it is not there: %+v, %v", p, err)
		}
	})
}

func isConflict(err error) bool {
	_, ok := errors.AsType[*history.ConflictError](err)
	return ok
}

// What a person accepted holds for no call after the one that it was said of, also where it is
// not seen that there was one: how many were made is in the deferral itself.
func TestARedriveHoldsUntilACallOfUnknownFate(t *testing.T) {
	synctest.Test(t, testARedriveHolds)
}

func testARedriveHolds(t *testing.T) {
	for attempt, again := range map[int]bool{1: true, 2: false} {
		s := &historytest.Log{}
		s.Put("mandate.enroll.reopened.r1", []byte(`{"attempt":1,"by":"ann","was":{"state":"uncertain"},"after_unknown":true,"fingerprint":"f"}`))
		if attempt > 1 {
			s.Put("mandate.enroll.started.r1", []byte(`{"attempt":2,"fingerprint":"f"}`))
		}
		s.Put("mandate.enroll.deferred.r1", fmt.Appendf(nil, `{"attempt":%d,"reason":"no_answer","after_unknown":true}`, attempt))
		for _, l := range []history.Log{s, &behind{s, -1}} {
			if p, err := worker(l, "f").Read(t.Context()); err != nil || p.Again != again {
				t.Errorf("%d calls, %T: it holds: %v, %v, want %v", attempt, l, p.Again, err, again)
			}
		}
	}
}
