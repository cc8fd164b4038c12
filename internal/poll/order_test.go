package poll

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"errand/pkg/clients/mail"
)

// at returns times, in minutes after a fixed time.
func at(minutes ...float64) (times []time.Time) {
	for _, m := range minutes {
		times = append(times, time.Unix(1767240000, 0).Add(time.Duration(m*float64(time.Minute))))
	}
	return times
}

func run(n int, f func(i int) float64) (minutes []float64) {
	for i := range n {
		minutes = append(minutes, f(i))
	}
	return minutes
}

func TestTheOrderIsFoundFromTheTimesOfRows(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for name, c := range map[string]struct {
		minutes []float64
		want    order
	}{
		"newest first":                  {run(30, func(i int) float64 { return float64(-i) }), newestFirst},
		"oldest first":                  {run(30, func(i int) float64 { return float64(i) }), oldestFirst},
		"without order":                 {run(30, func(int) float64 { return random.Float64() * 1000 }), unordered},
		"too few":                       {run(enough, func(i int) float64 { return float64(-i) }), undecided},
		"no order at once":              {[]float64{0, 100, 0}, unordered},
		"all at one time":               {run(100, func(int) float64 { return 5 }), undecided},
		"newest first, jitter":          {run(100, func(i int) float64 { return -float64(i) + 6*random.Float64() }), newestFirst},
		"oldest first, jitter":          {run(100, func(i int) float64 { return float64(i) - 6*random.Float64() }), oldestFirst},
		"no order within the tolerance": {run(100, func(int) float64 { return 7 * random.Float64() }), undecided},
		"newest first within a minute":  {run(100, func(i int) float64 { return -float64(i) / 100 }), newestFirst},
		"oldest first, in three bursts": {run(90, func(i int) float64 { return float64(i / 30 * 60) }), oldestFirst},
		"newest first, in three bursts": {run(90, func(i int) float64 { return -float64(i / 30 * 60) }), newestFirst},
		"newest first but for one row":  {append(run(30, func(i int) float64 { return float64(-i) }), 0), unordered},
	} {
		compass := compass{tolerance: 7*time.Minute + 30*time.Second}
		for chunk := range slices.Chunk(at(c.minutes...), 10) {
			compass.add(chunk, true)
		}
		if got := compass.order(); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestPagesThatDoNotJoinAreNotCompared(t *testing.T) {
	c := compass{tolerance: time.Minute}
	c.add(at(run(30, func(i int) float64 { return float64(-i) })...), true)
	c.add(at(run(30, func(i int) float64 { return float64(20 - i) })...), false) // twenty rows were added in between
	if got := c.order(); got != newestFirst {
		t.Errorf("order = %s, want %s", got, newestFirst)
	}
}

func TestARowWithoutATimeGetsItsNeighboursTime(t *testing.T) {
	times := at(0, 1, 2)
	now := times[0]
	rows := []mail.Entry{{}, {CreatedAt: times[1]}, {CreatedAt: now.AddDate(70, 0, 0)}, {CreatedAt: times[2]}, {}}
	if got, want := timesOf(rows, now), []time.Time{times[1], times[1], times[1], times[2], times[2]}; !slices.Equal(got, want) {
		t.Errorf("times = %v, want %v", got, want)
	}
	if got := timesOf([]mail.Entry{{}, {}}, now); got != nil {
		t.Errorf("rows without any time have %v", got)
	}
}
