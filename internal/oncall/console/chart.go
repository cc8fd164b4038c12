package console

import (
	"time"

	"errand/internal/oncall/index"
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
