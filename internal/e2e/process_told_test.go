//go:build unix

package e2e

import (
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
)

// waitTold waits until n requests have an outcome under a filter, whichever it is.
func (in *installation) waitTold(filter string, n int, within time.Duration) {
	in.t.Helper()
	in.until(fmt.Sprintf("%d outcomes under %s", n, filter), within, func() bool {
		ends := 0
		for subject := range in.subjects(filter) {
			if (event{Subject: subject}).final() {
				ends++
			}
		}
		return ends >= n
	})
}

// count counts the events under a filter without reading them.
func (in *installation) count(filter string) (n int) {
	in.t.Helper()
	for _, k := range in.subjects(filter) {
		n += int(k)
	}
	return n
}

// subjects counts the events under a filter by subject.
func (in *installation) subjects(filter string) map[string]uint64 {
	in.t.Helper()
	stream := bus.MailEvents
	switch domain, _, _ := strings.Cut(filter, "."); domain {
	case "mandate":
		stream = bus.MandateEvents
	case "dead":
		stream = bus.DeadLetters
	}
	if strings.HasPrefix(filter, "mail.delivery") || strings.HasPrefix(filter, "mail.log") {
		stream = bus.MailDeliveries
	}
	s, err := in.js.Stream(in.t.Context(), stream)
	if err != nil {
		in.t.Fatal(err)
	}
	info, err := s.Info(in.t.Context(), jetstream.WithSubjectFilter(filter))
	if err != nil {
		in.t.Fatal(err)
	}
	return info.State.Subjects
}

// told lists the events under a filter, oldest first.
func (in *installation) told(filter string) []event {
	in.t.Helper()
	if strings.HasPrefix(filter, "dead.") {
		return told(in.t, in.js, filter)
	}
	return told(in.t, in.hears, filter)
}

// wantOne fails unless exactly one event stands under filter, and gives it.
func (in *installation) wantOne(filter string) event {
	in.t.Helper()
	got := in.told(filter)
	if len(got) != 1 {
		in.t.Fatalf("%s: got %d events, want 1: %v\n%s", filter, len(got), got, in.last())
	}
	return got[0]
}

// queue is what the server says of a queue's consumer.
func (in *installation) queue(q bus.Queue) *jetstream.ConsumerInfo {
	in.t.Helper()
	c, err := in.js.Consumer(in.t.Context(), q.Stream, q.Name)
	if err != nil {
		in.t.Fatal(err)
	}
	return c.CachedInfo()
}

// left is how many requests wait in a queue or are in somebody's hand.
func (in *installation) left(q bus.Queue) int {
	in.t.Helper()
	c := in.queue(q)
	return int(c.NumPending) + c.NumAckPending
}
