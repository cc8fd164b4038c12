package deliveries

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"errand/pkg/messages"
)

// A bounce that is certainly of a request is stored before its event, and again with the same time if the poller dies in between.
func TestABounceIsStoredBeforeItsEvent(t *testing.T) {
	inScenario(t, func(s *scenario) {
		var stored []Bounce
		var broken error
		s.config.Suppress = func(_ context.Context, b []Bounce) error { stored = append(stored, b...); return broken }
		to := people("a", 5)
		s.sends("r", to[:3]...)
		s.sends("erased", to[3])
		s.sends("q", to[4])
		s.sends("p", to[4]) // at nearly the same time
		s.consumer.put(messages.Send, messages.Erased, "erased", &messages.ErasedBody{Common: messages.Common{RequestID: "erased", At: now()}})
		bounce := s.row(to[0], 2*time.Second, messages.Bounced)
		s.row(to[1], 2*time.Second, messages.Deferred)
		s.row(to[2], 2*time.Second, messages.Delivered)
		s.row(to[3], 2*time.Second, messages.Bounced)
		s.row(to[4], time.Second, messages.Bounced) // nobody knows whose
		s.row("stranger@example.test", time.Second, messages.Bounced)

		broken = errors.New("no room")
		s.restart()
		s.learn()
		entries := rowsOf(entriesOf(s.rows), time.Now())
		if n, err := s.log.Publish(s.Context(), entries)(); n != 0 || !errors.Is(err, broken) || len(s.events) > 0 {
			t.Errorf("%d events, %v, though the bounce is not stored", n, err)
		}
		broken = nil
		time.Sleep(time.Minute)
		s.run(time.Minute)
		want := Bounce{oldSecret.KeyOf(to[0]), bounce.created, "r", messages.SMTP{Code: 550, Enhanced: "5.1.1"}}
		for i, b := range stored {
			b.At = b.At.In(want.At.Location())
			stored[i] = b
		}
		if !slices.Equal(stored, []Bounce{want, want}) {
			t.Errorf("stored %s\nwant twice %v", fmt.Sprint(stored), want)
		}
	})
}
