package bus

import (
	"slices"
	"testing"
	"time"
)

func TestCallbacksOfLastMonthCountNoMore(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	for header, want := range map[string][]string{
		"":                                nil,
		"a.1800000000.7":                  {"a.1800000000.7"},
		"a.1797408000.9,b.1797408001.7":   {"b.1797408001.7"},
		"a,b.,c.x,.,d.1799999999.7,,":     {"d.1799999999.7"},
		"from-a-clock-ahead.1900000000.7": {"from-a-clock-ahead.1900000000.7"},
	} {
		if got, bytes := knownAt(header, now); !slices.Equal(got, want) || bytes != 7*len(want) {
			t.Errorf("%q: %q, want %q", header, got, want)
		}
	}
}
