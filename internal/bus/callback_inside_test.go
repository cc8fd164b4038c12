package bus

import (
	"slices"
	"testing"
	"time"
)

func TestCallbacksOfLastMonthCountNoMore(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	for header, want := range map[string][]string{
		"":                              nil,
		"a.1800000000":                  {"a.1800000000"},
		"a.1797408000,b.1797408001":     {"b.1797408001"},
		"a,b.,c.x,.,d.1799999999,,":     {"d.1799999999"},
		"from-a-clock-ahead.1900000000": {"from-a-clock-ahead.1900000000"},
	} {
		if got := knownAt(header, now); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", header, got, want)
		}
	}
}
