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
