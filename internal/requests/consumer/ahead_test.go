package consumer_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"errand/internal/history/historytest"
	"errand/internal/requests/admission"
	"errand/internal/requests/attempt"
	"errand/internal/requests/consumer"
	"errand/internal/requests/hold"
	"errand/pkg/messages"
)

// Where calls are quick, more is taken than workers are free, but no more than they begin within milliseconds. What they do not begin goes
// back to the queue within a second, for other replicas, and no more is taken ahead until calls are quick again.
func TestWhatIsTakenAheadOfCallsThatStallGoesBack(t *testing.T) {
	const requests, places, quick = 3000, 8, 1000
	synctest.Test(t, func(t *testing.T) {
		var bodies []string
		for i := range requests {
			bodies = append(bodies, fmt.Sprintf(enrollments.body, i))
		}
		q := newQueue(messages.Enroll.Requested(), bodies...)
		taken := func() int {
			_, n, _ := q.Waiting(t.Context())
			return n
		}
		var begun, most atomic.Int64
		stalled, goOn := make(chan struct{}, places), make(chan struct{})
		stop := enrollIn1ms(t, q, admission.NewSlots(places), func() {
			if begun.Add(1) > quick {
				select {
				case stalled <- struct{}{}:
					<-goOn
				case <-goOn:
				}
			}
			most.Store(max(most.Load(), int64(taken())))
		})
		for range places {
			<-stalled
		}
		if n := most.Load(); n <= places || n > 2*places+1 {
			t.Errorf("at most %d were taken while calls were quick, want more than %d and at most as many again", n, places)
		}
		for wait := 1100 * time.Millisecond; wait < time.Minute; wait *= 2 {
			if time.Sleep(wait); taken() != places || begun.Load() != quick+places {
				t.Errorf("%d are taken when calls have stalled, %d have begun, want %d and %d", taken(), begun.Load(), places, quick+places)
			}
		}
		close(goOn)
		for q.unsettled() > 0 {
			time.Sleep(time.Second)
		}
		if settled := stop(); begun.Load() != requests || settled != requests {
			t.Errorf("%d requests were begun and %d settled, want %d", begun.Load(), settled, requests)
		}
	})
}

// An empty queue keeps no place from what was taken ahead, and that waits for a third of a short AckWait at most: it has no lease.
func TestWhatIsTakenAheadIsBegunOrGivenBackBeforeItsAckWait(t *testing.T) {
	const requests, places, quick = 200, 10, 195
	for _, stall := range []time.Duration{0, 400 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			var bodies []string
			for i := range requests {
				bodies = append(bodies, fmt.Sprintf(enrollments.body, i))
			}
			q := brief{newQueue(messages.Enroll.Requested(), bodies...)}
			slots := admission.NewSlots(places)
			for range places - 1 { // other operations have them
				_ = slots.Take(t.Context())
			}
			began, calls := time.Now(), 0
			stop := enrollIn1ms(t, q, slots, func() {
				if calls++; calls == quick && stall > 0 {
					time.Sleep(stall)
					if _, n, _ := q.Waiting(t.Context()); n != 1 {
						t.Errorf("%d are taken when calls stall for %v of an AckWait of %v, want 1", n, stall, q.AckWait())
					}
				}
			})
			for q.unsettled() > 0 {
				time.Sleep(time.Millisecond)
			}
			if took := time.Since(began); stall == 0 && took > time.Second {
				t.Errorf("%d calls of a millisecond took %v", requests, took)
			}
			stop()
		})
	}
}

// brief is a queue with the shortest AckWait.
type brief struct{ *queue }

func (brief) AckWait() time.Duration { return time.Second }

// enrollIn1ms settles requests in a millisecond each, after before, until stop is called, which returns how many were.
func enrollIn1ms(t *testing.T, q consumer.Queue, places admission.Slots, before func()) (stop func() (settled int)) {
	log := &historytest.Log{}
	settings := consumer.Settings{Log: log, InFlight: places, GiveUpAfter: time.Hour,
		Kept: func() time.Duration { return 0 }, Newer: func() bool { return false }, Logger: zerolog.Nop(),
		Observer: consumer.Observer{Settled: func(consumer.Outcome) {}, Panicked: func(messages.Operation) {}}}
	ctx, end := context.WithCancel(t.Context())
	c := consumer.New(settings, q, &hold.Hold{Interval: time.Minute}, consumer.Enrollments(
		func(_ context.Context, r attempt.Request[messages.EnrollRequest]) (messages.Event, error) {
			before()
			time.Sleep(time.Millisecond)
			return r.History.Event(messages.Succeeded, &messages.EnrollSucceeded{OrderNumber: r.Body.OrderNumber,
				Enrollment: json.RawMessage(`{}`), Fingerprint: r.History.Fingerprint}), nil
		}))
	var running sync.WaitGroup
	running.Go(func() { _ = c.Run(ctx, t.Context()) })
	return func() int {
		end()
		running.Wait()
		return len(log.Events())
	}
}
