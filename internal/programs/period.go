package programs

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Period is a duration, also in days and weeks.
type Period struct{ time.Duration }

// UnmarshalText reads 90m, 12h, 3d or 1w2d, and off for 0.
func (p *Period) UnmarshalText(text []byte) (err error) {
	if p.Duration = 0; string(text) == "off" {
		return nil
	}
	if p.Duration, err = parsePeriod(string(text)); err != nil || p.Duration <= 0 {
		return fmt.Errorf("must be a time such as 30m, 12h or 2d, got %q", text)
	}
	return nil
}

// parsePeriod is time.ParseDuration with weeks and days in front: 3d, 1w, 1d12h.
func parsePeriod(text string) (d time.Duration, err error) {
	for _, unit := range []struct {
		name string
		d    time.Duration
	}{{"w", 7 * 24 * time.Hour}, {"d", 24 * time.Hour}} {
		if number, rest, found := strings.Cut(text, unit.name); found {
			n, err := strconv.ParseUint(number, 10, 16)
			if err != nil {
				return 0, err
			}
			d += time.Duration(n) * unit.d
			text = rest
		}
	}
	if text == "" {
		return d, nil
	}
	rest, err := time.ParseDuration(text)
	if rest < 0 {
		return 0, strconv.ErrRange
	}
	return d + rest, err
}

// When is a time in the past: how long ago (24h, 3d), or a date.
type When struct {
	ago time.Duration
	at  time.Time
}

// whenLayouts are the layouts of dates. Without a time zone a date is in this machine's.
var whenLayouts = []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02T15:04", time.DateTime, "2006-01-02 15:04", time.DateOnly}

// UnmarshalText reads either.
func (w *When) UnmarshalText(text []byte) error {
	*w = When{}
	for _, layout := range whenLayouts {
		if at, err := time.ParseInLocation(layout, string(text), time.Local); err == nil {
			w.at = at
			return nil
		}
	}
	var p Period
	if p.UnmarshalText(text) != nil || p.Duration == 0 {
		return fmt.Errorf("must be a period such as 90m, 24h or 3d, or a date such as 2026-01-31 or 2026-01-31T08:00, got %q", text)
	}
	w.ago = p.Duration
	return nil
}

// IsSet reports whether a time was given.
func (w When) IsSet() bool { return w != When{} }

// From returns the time, seen from now; zero if none was given.
func (w When) From(now time.Time) time.Time {
	if w.ago > 0 {
		return now.Add(-w.ago)
	}
	return w.at
}
