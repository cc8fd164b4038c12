package errandtest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"errand/pkg/messages"
)

// recorder is a test that is meant to fail.
type recorder struct {
	testing.TB
	said string
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.said = fmt.Sprintf(format, args...)
	panic(r)
}

// failure returns what f fails with, "" if it does not.
func (w *World) failure(f func()) (said string) {
	r := &recorder{TB: w.t}
	w.t = r
	defer func() {
		w.t, said = r.TB, r.said
		if p := recover(); p != nil && p != any(r) {
			panic(p)
		}
	}()
	f()
	return ""
}

// An event that never comes ends a test in a bubble after an hour, which takes seconds, and says what came instead.
func TestAWaitForWhatNeverComesEndsWithTheStory(t *testing.T) {
	began := time.Now()
	InBubble(t, func(t *testing.T, w *World) {
		receipt, err := w.Client.Publish(t.Context(), messages.SendRequest{RequestID: "first", To: messages.Recipients("ann@example.com"),
			Subject: "Hello", Content: "See you."})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		said := w.failure(func() { w.WantEvent("mail.delivery.bounced.first") })
		for _, want := range []string{"none came in 1h", "mail.send.accepted.first", "mail.delivery.delivered.first"} {
			if !strings.Contains(said, want) {
				t.Errorf("it lacks %q: %s", want, said)
			}
		}
		if took := time.Since(began); took > 2*time.Hour {
			t.Errorf("it took %v", took)
		}
		if said = w.failure(func() { w.WantOutcome(receipt, messages.Failed) }); !strings.Contains(said, "first is accepted, want failed") {
			t.Errorf("it says %s", said)
		}
	})
	t.Logf("it took %v", time.Since(began))
}
