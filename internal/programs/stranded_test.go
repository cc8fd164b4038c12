package programs

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"errand/internal/bus"
	"errand/internal/sandbox/devkit"
	"errand/internal/sandbox/devkit/devtest"
)

func TestMain(m *testing.M) { devtest.Main(m) }

// A queue is started over after two minutes in which every reading finds the same, unless a person should decide. What is in
// flight, deferred, or waits for room in flight is not forgotten.
func TestAQueueThatForgotRequestsIsStartedOverAfterTwoMinutes(t *testing.T) {
	q := bus.EnrollQueue
	for _, c := range []struct {
		name     string
		spoil    func(*testing.T, *runtime)
		measured int    // after two minutes
		pending  uint64 // after that
	}{
		{"forgotten", func(t *testing.T, r *runtime) { strand(t, r, 6) }, 5, 5},
		{"forgotten in part", func(t *testing.T, r *runtime) { strand(t, r, 4) }, 3, 5},
		{"of a paused queue", func(t *testing.T, r *runtime) {
			strand(t, r, 6)
			_, err := r.js.PauseConsumer(t.Context(), q.Stream, q.Name, time.Now().Add(time.Hour))
			check(t, err)
		}, 5, 0},
		{"of a history that was made later", func(t *testing.T, r *runtime) {
			strand(t, r, 6)
			s, err := r.js.Stream(t.Context(), bus.MandateEvents)
			check(t, err)
			time.Sleep(time.Second)
			check(t, r.js.DeleteStream(t.Context(), bus.MandateEvents))
			_, err = r.js.CreateStream(t.Context(), s.CachedInfo().Config)
			check(t, err)
		}, 5, 0},
		{"delivered and deferred", func(t *testing.T, r *runtime) {
			pull := pullOf(t, r)
			for range 5 {
				got, err := pull.Next(t.Context(), time.Second)
				check(t, err)
				check(t, got.NakWithDelay(time.Hour))
			}
			pull.Close()
		}, 0, 0},
		{"no more may be in flight", func(t *testing.T, r *runtime) {
			config := q.Config(devtest.Limits(r.nc))
			config.MaxAckPending = 1
			_, err := r.js.UpdateConsumer(t.Context(), q.Stream, config)
			check(t, err)
			pull := pullOf(t, r)
			got, err := pull.Next(t.Context(), time.Second)
			check(t, err)
			check(t, got.NakWithDelay(time.Hour))
			pull.Close()
		}, 0, 4},
		{"removed", func(t *testing.T, r *runtime) {
			s, err := r.js.Stream(t.Context(), q.Stream)
			check(t, err)
			check(t, s.Purge(t.Context()))
		}, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			devtest.InBubble(t, func(t *testing.T, _ *devkit.NATS, nc *nats.Conn) {
				r := &runtime{metrics: newMetrics(), nc: nc}
				var err error
				r.js, err = bus.JetStream(t.Context(), nc)
				check(t, err)
				r.publisher, err = bus.NewPublisher(nc)
				check(t, err)
				for range 5 {
					_, err := r.js.Publish(t.Context(), q.Filter, []byte("{}"))
					check(t, err)
				}
				c.spoil(t, r)
				for began, after := time.Now(), 2*time.Minute; ; time.Sleep(5 * time.Second) {
					if why := r.problem(t.Context(), []bus.Queue{q}, []string{q.Stream, bus.MandateEvents}); why != "" {
						t.Fatal(why)
					}
					took := time.Since(began)
					want := 0
					if took == after {
						want = c.measured
					}
					line := fmt.Sprintf("errand_queue_stranded{lane=\"default\",operation=\"mandate.enroll\"} %d\n", want)
					if got := scrape(t, r.metrics); took <= after && !bytes.Contains(got, []byte(line)) {
						t.Fatalf("after %v want %s in:\n%s", took, line, got)
					}
					if took > after {
						break
					}
				}
				consumer, err := r.js.Consumer(t.Context(), q.Stream, q.Name)
				check(t, err)
				if got := consumer.CachedInfo().NumPending; got != c.pending {
					t.Errorf("%d are pending, want %d", got, c.pending)
				}
			})
		})
	}
}

// strand has the server forget what the queue has before a sequence.
func strand(t *testing.T, r *runtime, sequence uint64) {
	t.Helper()
	_, err := r.js.ResetConsumerToSequence(t.Context(), bus.EnrollQueue.Stream, bus.EnrollQueue.Name, sequence)
	check(t, err)
}

func pullOf(t *testing.T, r *runtime) *bus.Pull {
	t.Helper()
	c, err := r.js.Consumer(t.Context(), bus.EnrollQueue.Stream, bus.EnrollQueue.Name)
	check(t, err)
	return bus.NewPull(r.nc, c)
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
