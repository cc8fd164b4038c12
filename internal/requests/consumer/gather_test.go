package consumer_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"errand/internal/bus"
	"errand/internal/history/historytest"
	"errand/internal/requests/admission"
	"errand/internal/requests/attempt"
	"errand/internal/requests/consumer"
	"errand/internal/requests/enroll"
	"errand/internal/requests/hold"
	"errand/pkg/messages"
)

// Where calls are quick a pull brings many requests; where they are slow, or places few, it does not wait for that. The process never
// has more than it has places.
func TestAPullBringsManyRequestsAtOnceAndNoMoreThanThereArePlaces(t *testing.T) {
	const requests = 1500
	for _, want := range []struct {
		places, pulls int64
		call, took    time.Duration
	}{
		{30, requests / 10, 2 * time.Millisecond, 160 * time.Millisecond}, // of 100 ms with pulls that bring one
		{30, requests, time.Second, 52 * time.Second},                     // of 50
		{5, requests, 5 * time.Millisecond, 1600 * time.Millisecond},      // of 1500
	} {
		synctest.Test(t, func(t *testing.T) {
			var bodies []string
			for i := range requests {
				bodies = append(bodies, fmt.Sprintf(enrollments.body, i))
			}
			q := &counted{queue: newQueue(messages.Enroll.Requested(), bodies...)}
			settings := consumer.Settings{Log: &historytest.Log{}, InFlight: admission.NewSlots(int(want.places)), GiveUpAfter: time.Hour,
				Kept: func() time.Duration { return 0 }, Newer: func() bool { return false }, Logger: zerolog.Nop(),
				Settled: func(consumer.Outcome) {}, Panicked: func(messages.Operation) {}}
			ctx, stop := context.WithCancel(t.Context())
			var most, last atomic.Int64
			began := time.Now()
			handle := func(_ context.Context, r attempt.Request[messages.EnrollRequest]) (messages.Event, error) {
				_, n, _ := q.Waiting(t.Context())
				most.Store(max(most.Load(), int64(n)))
				time.Sleep(want.call/2 + rand.N(want.call))
				if last.Add(1) == requests {
					t.Logf("%d pulls in %v", q.pulls.Load(), time.Since(began))
					if p := q.pulls.Load(); p > want.pulls+10 || time.Since(began) > want.took {
						t.Errorf("%d requests of %v each took %d pulls and %v, want %d and %v", requests, want.call, p, time.Since(began), want.pulls,
							want.took)
					}
					stop()
				}
				return r.History.Event(messages.Succeeded, &messages.EnrollSucceeded{Enrollment: json.RawMessage(`{}`)}), nil
			}
			_ = consumer.New(settings, q, &hold.Hold{Interval: time.Minute}, handle, enroll.Ended).Run(ctx, t.Context())
			if n := most.Load(); n > want.places || q.unsettled() > 0 {
				t.Errorf("at most %d requests were in the process, want %d; %d are left", n, want.places, q.unsettled())
			}
		})
	}
}

// counted is a queue that counts pulls.
type counted struct {
	*queue
	pulls atomic.Int64
}

func (c *counted) Some(ctx context.Context, n int, take func(*bus.Request)) error {
	c.pulls.Add(1)
	return c.queue.Some(ctx, n, take)
}
