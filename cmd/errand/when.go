package main

import (
	"fmt"
	"time"

	"errand/internal/programs"
)

// when is a time in the past: how long ago (24h, 3d), or a date.
type when struct {
	ago time.Duration
	at  time.Time
}

// whenLayouts are the layouts of dates. Without a time zone a date is in this machine's.
var whenLayouts = []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02T15:04", time.DateTime, "2006-01-02 15:04", time.DateOnly}

func (w *when) UnmarshalText(text []byte) error {
	*w = when{}
	for _, layout := range whenLayouts {
		if at, err := time.ParseInLocation(layout, string(text), time.Local); err == nil {
			w.at = at
			return nil
		}
	}
	var p programs.Period
	if p.UnmarshalText(text) != nil || p.Duration == 0 {
		return fmt.Errorf("must be a period such as 90m, 24h or 3d, or a date such as 2026-01-31 or 2026-01-31T08:00, got %q", text)
	}
	w.ago = p.Duration
	return nil
}

func (w when) isSet() bool { return w != when{} }

// from returns the time, seen from now; zero if none was given.
func (w when) from(now time.Time) time.Time {
	if w.ago > 0 {
		return now.Add(-w.ago)
	}
	return w.at
}
