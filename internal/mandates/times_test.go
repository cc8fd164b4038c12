package mandates

import (
	"testing"
	"time"
	_ "time/tzdata"
)

// A record from the hour that a zone has twice is not surely younger, or older, than a call.
func TestARepeatedHourProvesNothing(t *testing.T) {
	for _, zone := range []string{"Europe/London", "America/New_York"} {
		in, err := time.LoadLocation(zone)
		if err != nil {
			t.Fatal(err)
		}
		first := map[string]time.Time{"Europe/London": time.Date(2026, 10, 25, 0, 30, 0, 0, time.UTC),
			"America/New_York": time.Date(2026, 11, 1, 5, 30, 0, 0, time.UTC)}[zone]
		times := &Times{Zone: in, learned: in}
		for _, made := range []time.Time{first, first.Add(time.Hour)} {
			text := made.In(in).Format(time.DateTime)
			if times.after(text, first.Add(30*time.Minute)) || times.before(text, first.Add(30*time.Minute)) {
				t.Errorf("%s: %s is taken for one of the two hours", zone, text)
			}
		}
		if text := first.Add(-time.Hour).In(in).Format(time.DateTime); !times.before(text, first.Add(-30*time.Minute)) {
			t.Errorf("%s: %s is not surely before", zone, text)
		}
	}
}
