package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
)

// waitOutcomes waits until n requests have an outcome under a filter, whichever it is.
func (in *installation) waitOutcomes(filter string, n int, within time.Duration) {
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
	return insist(in.t, func() (*jetstream.StreamInfo, error) {
		s, err := in.js.Stream(in.t.Context(), stream)
		if err != nil {
			return nil, err
		}
		return s.Info(in.t.Context(), jetstream.WithSubjectFilter(filter))
	}).State.Subjects
}

// insist repeats a question that a cluster does not answer while it elects a leader.
func insist[T any](t *testing.T, ask func() (T, error)) T {
	t.Helper()
	answer, err := ask()
	for end := time.Now().Add(time.Minute); err != nil; answer, err = ask() {
		if !bus.IsUnavailable(err) || time.Now().After(end) {
			t.Fatal(err)
		}
		wait(t.Context(), 100*time.Millisecond)
	}
	return answer
}

// events lists the events under a filter, oldest first.
func (in *installation) events(filter string) []event {
	in.t.Helper()
	return readEvents(in.t, in.js, filter)
}

// wantOne fails unless exactly one event is under filter, and gives it.
func (in *installation) wantOne(filter string) event {
	in.t.Helper()
	got := in.events(filter)
	if len(got) != 1 {
		in.t.Fatalf("%s: got %d events, want 1: %v\n%s", filter, len(got), got, in.lastOutput())
	}
	return got[0]
}

// queue is what the server says of a queue's consumer.
func (in *installation) queue(q bus.Queue) *jetstream.ConsumerInfo {
	in.t.Helper()
	return insist(in.t, func() (jetstream.Consumer, error) { return in.js.Consumer(in.t.Context(), q.Stream, q.Name) }).CachedInfo()
}

// unsettled is how many requests wait in a queue or are in flight.
func (in *installation) unsettled(q bus.Queue) int {
	in.t.Helper()
	c := in.queue(q)
	return int(c.NumPending) + c.NumAckPending
}

// untilReady waits until a program says that it is ready.
func (in *installation) untilReady(p *process) {
	in.t.Helper()
	in.until(p.name+" to be ready", time.Minute, func() bool {
		if !p.logged("admin server listens") {
			return false
		}
		status, _ := p.get("/readyz")
		return status == http.StatusOK
	})
}

// shrinkDuplicateWindow all but ends the duplicate window, which would hide what is published twice
// about the log.
func (in *installation) shrinkDuplicateWindow() {
	in.t.Helper()
	s, err := in.js.Stream(in.t.Context(), bus.MailDeliveries)
	must(in.t, err)
	config := s.CachedInfo().Config
	config.Duplicates = 100 * time.Millisecond // the least there is
	if _, err := in.js.UpdateStream(in.t.Context(), config); err != nil {
		in.t.Fatal(err)
	}
}

// wantOnce wants n requests, each delivered once, called once and ended once.
func (in *installation) wantOnce(queue bus.Queue, well, call string, n int) {
	in.t.Helper()
	if q := in.queue(queue); q.Delivered.Consumer != uint64(n) || q.Delivered.Stream != uint64(n) || q.NumRedelivered != 0 {
		in.t.Errorf("%s: %d deliveries of %d requests, %d waiting as redelivered", queue.Name, q.Delivered.Consumer, q.Delivered.Stream, q.NumRedelivered)
	}
	if ended, calls := in.count(well), in.calls(call); ended != n || calls != int64(n) {
		in.t.Errorf("%d requests: %d ended well, with %d calls", n, ended, calls)
	}
}
