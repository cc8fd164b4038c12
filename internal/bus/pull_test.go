package bus_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/sandbox/devkit/devtest"
	"errand/pkg/messages"
)

// queueOf publishes enrollments of so many bytes, and returns their queue when the server counts
// them there, which it does a little after it stored them.
func queueOf(t *testing.T, js jetstream.JetStream, n, size int) jetstream.Consumer {
	t.Helper()
	for i := range n {
		body := fmt.Sprint(i, " ", strings.Repeat("x", size))
		if _, err := js.Publish(t.Context(), messages.Enroll.Requested(), []byte(body)); err != nil {
			t.Fatal(err)
		}
	}
	queue, err := js.Consumer(t.Context(), bus.EnrollQueue.Stream, bus.EnrollQueue.Name)
	if err != nil {
		t.Fatal(err)
	}
	for {
		info, err := queue.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if info.NumPending == uint64(n) {
			return queue
		}
	}
}

// pulled has a pull give all of n messages, up to most at a time, and says how many each request gave. Each must come
// once, at its first delivery, and none may be on its way when a request is over.
func pulled(t *testing.T, pull *bus.Pull, queue jetstream.Consumer, n, most int) (counts []int) {
	t.Helper()
	seen := map[string]bool{}
	for len(seen) < n {
		count := 0
		err := pull.Some(t.Context(), most, func(r *bus.Request) {
			count++
			name, _, _ := strings.Cut(string(r.Data), " ")
			if seen[name] || r.Delivered != 1 {
				t.Errorf("message %s came again, at delivery %d", name, r.Delivered)
			}
			seen[name] = true
		})
		if err != nil && !errors.Is(err, bus.ErrNoMessage) {
			t.Fatal(err)
		}
		if info, err := queue.Info(t.Context()); err != nil || info.NumAckPending != len(seen) {
			t.Fatalf("%d messages are sent and %d came, %v", info.NumAckPending, len(seen), err)
		}
		if counts = append(counts, count); count > most {
			t.Fatalf("one request for %d gave %d", most, count)
		}
	}
	return counts
}

func TestOneRequestGivesAsManyMessagesAsItAsksFor(t *testing.T) {
	for _, c := range []struct {
		what          string
		n, size, most int
		want          []int
	}{
		{"small ones", 100, 0, 30, []int{30, 30, 30, 10}},
		{"one at a time", 3, 0, 1, []int{1, 1, 1}},
		{"all at once", 300, 0, 1000, []int{256, 44}},
		{"large ones, by their bytes", 100, 100 << 10, 80, []int{40, 40, 20}},
	} {
		t.Run(c.what, func(t *testing.T) {
			_, nc := devtest.Provisioned(t)
			js, err := jetstream.New(nc)
			if err != nil {
				t.Fatal(err)
			}
			queue := queueOf(t, js, c.n, c.size)
			pull := bus.NewPull(nc, queue)
			defer pull.Close()
			if got := pulled(t, pull, queue, c.n, c.most); fmt.Sprint(got) != fmt.Sprint(c.want) {
				t.Errorf("the requests gave %v, want %v", got, c.want)
			}
			none := pull.Some(t.Context(), c.most, func(*bus.Request) { t.Error("one came again") })
			if !errors.Is(none, bus.ErrNoMessage) {
				t.Errorf("an empty queue: got %v", none)
			}
		})
	}
}

// In a cluster a server may say that no message is left before the messages come.
func TestNoMessageOfAClusterIsLeftBehind(t *testing.T) {
	c := devtest.NewCluster(t)
	js := c.Replicate(bus.MandateRequests)
	if _, err := js.CreateConsumer(t.Context(), bus.EnrollQueue.Stream, bus.EnrollQueue.Config(devtest.Limits(c.Conns[0]))); err != nil {
		t.Fatal(err)
	}
	queue := queueOf(t, js, 120, 100<<10)
	pull := bus.NewPull(c.Conns[1], queue)
	defer pull.Close()
	t.Logf("the requests gave %v", pulled(t, pull, queue, 120, 80))
}

// A request that waits when the connection is lost is made again: what comes later is not sent
// to the one that nobody reads now.
func TestALostConnectionEndsARequest(t *testing.T) {
	n, nc := devtest.Provisioned(t)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	queue := queueOf(t, js, 0, 0)
	pull := bus.NewPull(nc, queue)
	defer pull.Close()
	restarted := make(chan error, 1)
	go func() {
		for ctx := t.Context(); ; {
			info, err := queue.Info(ctx)
			if err != nil || info.NumWaiting > 0 {
				restarted <- errors.Join(err, n.Restart())
				return
			}
		}
	}()
	if m, err := pull.Next(t.Context(), 0); m != nil || err == nil {
		t.Fatalf("an empty queue gave %v", m)
	}
	if err := <-restarted; err != nil {
		t.Fatal(err)
	}
	for {
		if _, err = js.Publish(t.Context(), messages.Enroll.Requested(), []byte("later"), jetstream.WithMsgID("1")); err == nil {
			break // the connection is back
		}
	}
	var m *bus.Request
	for m == nil {
		if m, err = pull.Next(t.Context(), 0); err != nil && !errors.Is(err, bus.ErrNoMessage) {
			t.Log(err)
		}
	}
	if m.Delivered != 1 {
		t.Errorf("it came at delivery %d", m.Delivered)
	}
}
