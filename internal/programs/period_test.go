package programs

import (
	"testing"
	"time"
)

func TestATimeIsAPeriodOrADate(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.Local)
	for text, want := range map[string]time.Time{"90m": now.Add(-90 * time.Minute), "3d": now.Add(-72 * time.Hour),
		"1d12h": now.Add(-36 * time.Hour), "2w": now.AddDate(0, 0, -14),
		"2026-01-30": time.Date(2026, 1, 30, 0, 0, 0, 0, time.Local), "2026-01-30T08:00": time.Date(2026, 1, 30, 8, 0, 0, 0, time.Local),
		"2026-01-30T08:00:00Z": time.Date(2026, 1, 30, 8, 0, 0, 0, time.UTC)} {
		var w When
		if err := w.UnmarshalText([]byte(text)); err != nil || !w.From(now).Equal(want) {
			t.Errorf("%s: %v, %v, want %v", text, w.From(now), err, want)
		}
	}
}

func TestASizeIsANumberOfBytesWithAUnit(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Size{"1048576": 1 << 20, "1024K": 1 << 20, "512m": 512 << 20, "10G": 10 << 30, "2T": 2 << 40,
		"none": -1,
		"":     0, "0": 0, "-1": 0, "1K": 0, "1023K": 0, "G": 0, "10GB": 0, "1.5G": 0, "9999999999G": 0, "8388608T": 0, "G10": 0} {
		var got Size
		if err := got.UnmarshalText([]byte(text)); (err == nil) != (want != 0) || got != want {
			t.Errorf("%q: got %d, %v, want %d", text, got, err, want)
		}
	}
}
