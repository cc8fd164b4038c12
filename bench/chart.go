package main

import (
	"encoding/xml"
	"fmt"
	"strings"
)

// Sizes of the chart, in pixels.
const (
	chartWidth = 900
	rowHeight  = 16
	barHeight  = 12
	barWidth   = 270 // of the longest
	rateX      = 110
	costX      = 510
)

// colors of the contestants; the server's part of a bar is paler.
var colors = map[string]string{"errand": "#0b6e4f", "before": "#7fb69b", "watermill": "#c1666b",
	"loop": "#4a6fa5", "limit": "#8d99ae"}

// chart draws the results as SVG: for each scenario the rates with their spread, and the CPU time of contestant and
// server. The longest bar of a scenario has the full width.
func chart(results []result, about string) string {
	var b strings.Builder
	y := 64
	text(&b, 10, 22, "16px", "", "What errand costs, beside others")
	text(&b, 10, 42, "11px", "", about)
	for _, r := range results {
		text(&b, 10, y+11, "12px", "bold", r.title)
		text(&b, rateX+240, y+11, "10px", "", r.unit)
		text(&b, costX, y+11, "10px", "", "CPU s per 1,000: its own, + nats-server's")
		y += 18
		var fastest, dearest float64
		for i := range r.contestants {
			fastest = max(fastest, r.spread(i, columns[0].of).high)
			dearest = max(dearest, r.cost(i)[0]+r.cost(i)[1])
		}
		for i, who := range r.contestants {
			r.bars(&b, i, y, fastest, dearest, colors[who.name])
			y += rowHeight
		}
		y += 10
	}
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" `+
		`font-family="sans-serif">`+"\n"+
		`<rect width="100%%" height="100%%" fill="#ffffff"/>`+"\n%s</svg>\n", chartWidth, y, b.String())
}

// cost is the median CPU time of a contestant and of the server.
func (r result) cost(i int) [2]float64 {
	return [2]float64{r.spread(i, columns[1].of).median, r.spread(i, columns[2].of).median}
}

// bars draws one contestant's.
func (r result) bars(b *strings.Builder, i, y int, fastest, dearest float64, color string) {
	text(b, 24, y+10, "11px", "", r.contestants[i].name)
	rate, at := r.spread(i, columns[0].of), func(value float64) float64 { return rateX + barWidth*value/fastest }
	bar(b, rateX, y, at(rate.median)-rateX, color, 1)
	fmt.Fprintf(b, `<path d="M%.1f %d H%.1f" stroke="#222222" stroke-width="1.5"/>`+"\n", at(rate.low), y+barHeight/2, at(rate.high))
	text(b, int(at(rate.high))+5, y+10, "10px", "", fmt.Sprintf("%.0f", rate.median))
	cost := r.cost(i)
	own, servers := barWidth*cost[0]/dearest, barWidth*cost[1]/dearest
	bar(b, costX, y, own, color, 1)
	bar(b, costX+own, y, servers, color, 0.45)
	text(b, costX+int(own+servers)+5, y+10, "10px", "", fmt.Sprintf("%.3f + %.3f", cost[0], cost[1]))
}

func bar(b *strings.Builder, x float64, y int, width float64, color string, opacity float64) {
	fmt.Fprintf(b, `<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s" fill-opacity="%g"/>`+"\n", x, y, width, barHeight, color, opacity)
}

func text(b *strings.Builder, x, y int, size, weight, words string) {
	fmt.Fprintf(b, `<text x="%d" y="%d" font-size="%s" fill="#222222"`, x, y, size)
	if weight != "" {
		fmt.Fprintf(b, ` font-weight="%s"`, weight)
	}
	b.WriteString(">")
	_ = xml.EscapeText(b, []byte(words)) // a strings.Builder takes everything
	b.WriteString("</text>\n")
}
