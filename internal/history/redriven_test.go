package history_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"errand/internal/history"
	"errand/internal/history/historytest"
	"errand/pkg/messages"
)

// A replica shows less than was stored: by the started event it is known which contents the id has, and how a message
// was cut into batches.
func TestWhatWasDeferredIsKnownThoughAReplicaLagsBehind(t *testing.T) {
	for lag := range 3 {
		s := &historytest.Log{Lag: lag}
		s.Put("mandate.enroll.started.r1", []byte(`{"attempt":1,"fingerprint":"f","order_number":"o"}`))
		s.Put("mandate.enroll.deferred.r1", []byte(`{"attempt":1,"reason":"busy"}`))
		if p, err := worker(s, "f").Read(t.Context()); err != nil || p.Started == nil {
			t.Errorf("its own contents: %+v, %v", p, err)
		}
		if _, err := worker(s, "other").Read(t.Context()); !isConflict(err) {
			t.Errorf("other contents: %v, want a conflict", err)
		}
	}
	s := &historytest.Log{}
	s.Put("mandate.enroll.deferred.r1", []byte(`{"attempt":1,"reason":"busy"}`))
	if p, err := worker(s, "f").Read(t.Context()); err != nil || p.Started != nil {
		t.Errorf("where it was purged: %+v, %v", p, err)
	}
}

func isConflict(err error) bool {
	_, ok := errors.AsType[*history.ConflictError](err)
	return ok
}

// What a person accepted holds for no call after the one that it was said of.
func TestARedriveHoldsUntilACallOfUnknownFate(t *testing.T) {
	for attempt, again := range map[int]bool{1: true, 2: false} {
		for lag := range 3 {
			s := &historytest.Log{Lag: lag}
			s.Put("mandate.enroll.reopened.r1", []byte(`{"attempt":1,"by":"ann","was":{"state":"uncertain"},"after_unknown":true,`+
				`"fingerprint":"f"}`))
			if attempt > 1 {
				s.Put("mandate.enroll.started.r1", []byte(`{"attempt":2,"fingerprint":"f"}`))
			}
			s.Put("mandate.enroll.deferred.r1", fmt.Appendf(nil, `{"attempt":%d,"reason":"no_answer","after_unknown":true}`, attempt))
			if p, err := worker(s, "f").Read(t.Context()); err != nil || p.Again != again {
				t.Errorf("%d calls, %d behind: it holds: %v, %v, want %v", attempt, lag, p.Again, err, again)
			}
		}
	}
}

// A correction of a correction has the contents that failed first. A replica that lags behind shows only that failure.
func TestACorrectionBackIsRunThoughAReplicaLagsBehind(t *testing.T) {
	for lag := range 4 {
		synctest.Test(t, func(t *testing.T) {
			log, ran := &historytest.Log{}, 0
			deliver := func(fingerprint string, lag int) error {
				time.Sleep(time.Second)
				log.Lag = lag
				h := worker(log, fingerprint)
				h.Published, h.Corrects = time.Now(), historytest.Corrects
				_, err := h.Settle(t.Context(), true, func(history.Prior) (messages.Event, error) {
					if err := h.Store(context.Background(), messages.Started, &messages.EnrollStarted{Fingerprint: fingerprint}); err != nil {
						return messages.Event{}, err
					}
					ran++
					return h.Event(messages.Failed, &messages.FailedBody{Fingerprint: fingerprint, Reason: messages.ReasonRefused}), nil
				})
				return err
			}
			for _, err := range []error{deliver("a", 0), deliver("b", 0), deliver("a", lag)} {
				if err != nil {
					t.Errorf("%d behind: %v", lag, err)
				}
			}
			if ran != 3 {
				t.Errorf("%d behind: ran %d times, want 3", lag, ran)
			}
		})
	}
}
