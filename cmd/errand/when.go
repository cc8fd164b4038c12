package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"
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
	var err error
	if w.ago, err = parseAgo(string(text)); err != nil || w.ago <= 0 {
		return fmt.Errorf("must be a period such as 90m, 24h or 3d, or a date such as 2026-01-31 or 2026-01-31T08:00, got %q", text)
	}
	return nil
}

// parseAgo is time.ParseDuration with weeks and days in front: 3d, 1w, 1d12h.
func parseAgo(text string) (d time.Duration, err error) {
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

func (w when) isSet() bool { return w != when{} }

// from returns the time, seen from now; zero if none was given.
func (w when) from(now time.Time) time.Time {
	if w.ago > 0 {
		return now.Add(-w.ago)
	}
	return w.at
}
