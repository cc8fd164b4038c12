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
		log := &historytest.Log{}
		settings := consumer.Settings{Log: log, InFlight: admission.NewSlots(places), GiveUpAfter: time.Hour,
			Kept: func() time.Duration { return 0 }, Newer: func() bool { return false }, Logger: zerolog.Nop(),
			Observer: consumer.Observer{Settled: func(consumer.Outcome) {}, Panicked: func(messages.Operation) {}}}
		ctx, stop := context.WithCancel(t.Context())
		c := consumer.New(settings, q, &hold.Hold{Interval: time.Minute}, consumer.Enrollments(
			func(_ context.Context, r attempt.Request[messages.EnrollRequest]) (messages.Event, error) {
				if begun.Add(1) > quick {
					select {
					case stalled <- struct{}{}:
						<-goOn
					case <-goOn:
					}
				}
				most.Store(max(most.Load(), int64(taken())))
				time.Sleep(time.Millisecond)
				return r.History.Event(messages.Succeeded, &messages.EnrollSucceeded{OrderNumber: r.Body.OrderNumber,
					Enrollment: json.RawMessage(`{}`), Fingerprint: r.History.Fingerprint}), nil
			}))
		var running sync.WaitGroup
		running.Go(func() { _ = c.Run(ctx, t.Context()) })
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
		stop()
		running.Wait()
		if begun.Load() != requests || len(log.Events()) != requests {
			t.Errorf("%d requests were begun and %d settled, want %d", begun.Load(), len(log.Events()), requests)
		}
	})
}
