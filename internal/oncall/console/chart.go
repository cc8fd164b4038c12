package console

import (
	"fmt"
	"slices"
	"time"

	"errand/internal/oncall/index"
	"errand/internal/style"
	"errand/pkg/messages"
)

// chart shows outcomes by hour, as bars in a drawing of 720 by 190, and in numbers.
type chart struct {
	Bars  []bar
	Lines []gridLine
	Total tally
}

type bar struct {
	Begin, End time.Time
	X, Width   float64
	Parts      []part // bottom first
	tally
	Labelled bool
}

// Middle is the x coordinate of the bar's middle.
func (b bar) Middle() float64 { return b.X + b.Width/2 }

func (c chart) Newest() []bar {
	newest := slices.Clone(c.Bars)
	slices.Reverse(newest)
	return newest
}

type tally struct{ Good, Bad, Doubt int }

func (t tally) Sum() int { return t.Good + t.Bad + t.Doubt }

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

func chartOf(events []index.Count, begin time.Time) chart {
	c := chart{Bars: make([]bar, hours)}
	step := (chartWidth - chartLeft) / hours
	for i := range c.Bars {
		b := &c.Bars[i]
		b.Begin = begin.Add(time.Duration(i) * time.Hour)
		b.End = b.Begin.Add(time.Hour)
		b.X, b.Width = chartLeft+float64(i)*step+2, step-4
		b.Labelled = i%4 == 3
	}
	for _, n := range events {
		i := int(n.At.Sub(begin) / time.Hour)
		if i < 0 || i >= hours || n.Operation == messages.Delivery {
			continue
		}
		for _, t := range []*tally{&c.Bars[i].tally, &c.Total} {
			t.add(n.State, n.Count)
		}
	}
	top := 0
	for _, b := range c.Bars {
		top = max(top, b.Sum())
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
	for _, p := range []struct {
		class style.Look
		n     int
	}{{style.Good, b.Good}, {style.Doubt, b.Doubt}, {style.Bad, b.Bad}} {
		if p.n == 0 {
			continue
		}
		y := heightOf(below+p.n, top)
		height := heightOf(below, top) - y
		if height < 1.5 { // keep few among many visible
			y, height = y-(1.5-height), 1.5
		}
		b.Parts = append(b.Parts, part{p.class, y, height})
		below += p.n
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

func (c chart) Says() string {
	return fmt.Sprintf("Outcomes of the last %d hours: %d good, %d uncertain or partial, %d failed. The table below shows them by hour.",
		hours, c.Total.Good, c.Total.Doubt, c.Total.Bad)
}
