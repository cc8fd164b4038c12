package enroll

import (
	"testing"
	"time"
	_ "time/tzdata"
)

func TestTomorrowIsTheNextDayOfTheZonesCalendar(t *testing.T) {
	for _, c := range []struct{ zone, now, want string }{
		{"Asia/Kuala_Lumpur", "2026-01-30T15:59:59Z", "2026-01-31"},
		{"Asia/Kuala_Lumpur", "2026-01-30T16:00:00Z", "2026-02-01"},
		{"America/Sao_Paulo", "2017-10-14T03:30:00Z", "2017-10-15"}, // whose first hour does not exist
	} {
		zone, err := time.LoadLocation(c.zone)
		if err != nil {
			t.Fatal(err)
		}
		now, err := time.Parse(time.RFC3339, c.now)
		if err != nil {
			t.Fatal(err)
		}
		if got := (&enrollment{Handler: &Handler{Zone: zone}}).tomorrow(now); got != c.want {
			t.Errorf("at %s in %s: got %s, want %s", c.now, c.zone, got, c.want)
		}
	}
}
