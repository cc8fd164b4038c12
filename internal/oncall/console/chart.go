package console

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"errand/internal/oncall/index"
	"errand/internal/oncall/inspect"
	"errand/internal/style"
	"errand/pkg/messages"
)

// chart shows outcomes by hour, the newest first, as bars in a drawing of 720 by 190, and in numbers.
type chart struct {
	Bars  []bar
	Lines []gridLine
	Total tally
}

type bar struct {
	tally
	Begin, End       time.Time
	X, Middle, Width float64
	Parts            []part // bottom first
	Labelled         bool
}

type tally struct{ Good, Bad, Doubt int }

type part struct {
	Class     style.Look
	Y, Height float64
}

type gridLine struct {
	Y     float64
	Value int
}

// Sizes of the drawing.
const (
	hours      = 24
	chartWidth = 720.0
	chartLeft  = 44.0 // room for numbers
	chartTop   = 12.0
	chartBase  = 162.0
)

// chartBegin is when counting starts.
func chartBegin() time.Time {
	return time.Now().UTC().Truncate(time.Hour).Add(-(hours - 1) * time.Hour)
}

func chartOf(events []index.Count, begin time.Time) (c chart) {
	const step = (chartWidth - chartLeft) / hours
	top := 0
	for i := hours - 1; i >= 0; i-- {
		b := bar{Begin: begin.Add(time.Duration(i) * time.Hour), X: chartLeft + float64(i)*step + 2, Width: step - 4, Labelled: i%4 == 3}
		b.End, b.Middle = b.Begin.Add(time.Hour), b.X+b.Width/2
		for _, n := range events {
			if n.Operation != messages.Delivery && !n.At.Before(b.Begin) && n.At.Before(b.End) {
				b.add(n.State, n.Count)
				c.Total.add(n.State, n.Count)
			}
		}
		top = max(top, b.Good+b.Bad+b.Doubt)
		c.Bars = append(c.Bars, b)
	}
	unit := gridUnit(top)
	top = max(unit, (top+unit-1)/unit*unit)
	for value := 0; value <= top; value += unit {
		c.Lines = append(c.Lines, gridLine{Y: heightOf(value, top), Value: value})
	}
	for i := range c.Bars {
		c.Bars[i].stack(top)
	}
	return c
}

// add counts outcomes. Deferred and resolved are not outcomes.
func (t *tally) add(state messages.State, n int) {
	switch style.OfState(state) {
	case style.Good:
		t.Good += n
	case style.Bad:
		t.Bad += n
	case style.Doubt:
		t.Doubt += n
	}
}

func heightOf(value, top int) float64 {
	return chartBase - (chartBase-chartTop)*float64(value)/float64(top)
}

func (b *bar) stack(top int) {
	below := 0
	for i, n := range []int{b.Good, b.Doubt, b.Bad} {
		if n > 0 {
			height := max(heightOf(below, top)-heightOf(below+n, top), 1.5) // few among many stay visible
			look := []style.Look{style.Good, style.Doubt, style.Bad}[i]
			b.Parts = append(b.Parts, part{look, heightOf(below, top) - height, height})
			below += n
		}
	}
}

// gridUnit returns a round number; at most four of them make the highest bar.
func gridUnit(top int) int {
	for unit := 1; ; unit *= 10 {
		for _, f := range []int{1, 2, 5} {
			if unit*f*4 >= top {
				return unit * f
			}
		}
	}
}

// minute is the worst of a queue in one minute: how many waited there, and for how long the next of them had waited for a worker.
type minute struct {
	At    time.Time
	Depth uint64
	Wait  time.Duration
}

const keptMinutes = 60

// pastOf adds a status to what is known of queues. It leaves what was known before as it is: pages read it.
func pastOf(past map[string][]minute, s inspect.Status) map[string][]minute {
	now := map[string][]minute{}
	for _, q := range s.Queues {
		m := minute{At: s.At.Truncate(time.Minute), Depth: q.Untaken + uint64(max(0, q.Taken))}
		if q.FirstFree != nil {
			m.Wait = s.At.Sub(q.FirstFree.Time)
		}
		all := slices.Clone(past[q.String()])
		if last := len(all) - 1; last >= 0 && all[last].At.Equal(m.At) {
			m.Depth, m.Wait, all = max(m.Depth, all[last].Depth), max(m.Wait, all[last].Wait), all[:last]
		}
		all = append(all, m)
		now[q.String()] = slices.DeleteFunc(all, func(old minute) bool { return m.At.Sub(old.At) >= keptMinutes*time.Minute })
	}
	return now
}

// spark is a line of the last hour in a drawing of 60 by 16, and its highest value in words.
type spark struct{ Points, Most string }

// Sparks are a queue's depth and latency.
func (k known) Sparks(q inspect.Queue) []spark {
	past, most := k.Past[q.String()], minute{}
	for _, m := range past {
		most.Depth, most.Wait = max(most.Depth, m.Depth), max(most.Wait, m.Wait)
	}
	var depth, wait strings.Builder
	for _, m := range past {
		x := keptMinutes - int(k.Status.At.Truncate(time.Minute).Sub(m.At)/time.Minute)
		fmt.Fprintf(&depth, "%d,%.1f ", x, 15-14*float64(m.Depth)/float64(max(1, most.Depth)))
		fmt.Fprintf(&wait, "%d,%.1f ", x, 15-14*m.Wait.Seconds()/max(1, most.Wait.Seconds()))
	}
	return []spark{{depth.String(), "up to " + style.Count(most.Depth) + " waiting"},
		{wait.String(), "waited up to " + style.Span(most.Wait)}}
}
