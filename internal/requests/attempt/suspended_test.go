package attempt

import (
	"context"
	"testing"
	"time"

	"errand/internal/retry"
)

// While a machine is suspended its monotonic clock stands still: what was found out of a
// call before that is found out again, although no time seems to have passed.
func TestWhatWasFoundOutBeforeASuspensionIsFoundOutAgain(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		name  string
		found Deadline
		looks int
	}{
		{"just now", newDeadline(retry.LookIsGood), 0},
		{"before a suspension", Deadline{wall: now.Add(-time.Hour).Round(0), monotonic: now.Add(retry.LookIsGood)}, 1},
		{"before the clock was set back", Deadline{wall: now.Add(time.Hour).Round(0), monotonic: now.Add(-time.Second)}, 1},
	} {
		looks := 0
		r := &run[int]{Caller: &Caller{Timeout: time.Second}, found: c.found, counted: true, lease: Lease{until: newDeadline(time.Minute)},
			unknown: "no_answer", Call: Call[int]{Delivery: Delivery{GiveUpAt: now.Add(time.Hour)},
				OnUnknown: func(context.Context, bool) (Verdict, error) {
					looks++
					return Done, nil
				}}}
		if ended, err := r.prepare(t.Context()); ended || err != nil || looks != c.looks {
			t.Errorf("%s: %d looks, want %d; %t, %v", c.name, looks, c.looks, ended, err)
		}
	}
}
