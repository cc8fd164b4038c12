package main

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"text/tabwriter"
)

// round has the results of each contestant in one round, in their order.
type round []figures

// columns are the figures of a table.
var columns = []struct {
	head   string
	format string
	of     func(figures) float64
}{
	{"", "%.0f", func(f figures) float64 { return f.rate }},
	{"CPU s per 1,000", "%.3f", func(f figures) float64 { return f.cpu }},
	{"server's", "%.3f", func(f figures) float64 { return f.server }},
	{"peak MB", "%.1f", func(f figures) float64 { return f.peak }},
}

const explanation = `
%-16s from the first event stored to the last, by the server's clock
CPU s per 1,000  CPU time of the contestant including start and stop, user and system
server's         CPU time of nats-server meanwhile
peak MB          maximum resident memory of the contestant
%sAll processes share this machine: compare the ratios.
`

// settled explains what is compared with the loop of enrollments.
const settled = `errand stores two fenced events per request and logs a line; the loop stores one event, logs nothing,
checks nothing and calls again after a crash. `

// head is the heading of a column.
func (t *trial) head(column string) string { return cmp.Or(column, t.unit) }

// print shows one round, and the share of the ceiling if there is one.
func (t *trial) print(contestants []contestant, r round) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	defer func() { _ = w.Flush() }() // fails only when nobody reads
	fmt.Fprint(w, "\t")
	for _, column := range columns {
		fmt.Fprintf(w, "%s\t", t.head(column.head))
	}
	if t.ceiling > 0 {
		fmt.Fprint(w, "of the ceiling\t")
	}
	for i, f := range r {
		fmt.Fprintf(w, "\n%s\t", contestants[i].name)
		for _, column := range columns {
			fmt.Fprintf(w, column.format+"\t", column.of(f))
		}
		if t.ceiling > 0 {
			fmt.Fprintf(w, "%.2f\t", f.rate/t.ceiling)
		}
	}
	fmt.Fprintln(w)
}

// median is the median of each figure.
func median(all []round) round {
	m := make(round, len(all[0]))
	for i := range m {
		of := func(figure func(figures) float64) float64 {
			return middle(all, func(r round) float64 { return figure(r[i]) })
		}
		m[i] = figures{rate: of(columns[0].of), cpu: of(columns[1].of), server: of(columns[2].of), peak: of(columns[3].of)}
	}
	return m
}

// ratios shows the median of each contestant's ratio to the last one in the same round:
// other load on the machine affects both.
func (t *trial) ratios(contestants []contestant, all []round) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	defer func() { _ = w.Flush() }() // fails only when nobody reads
	last := len(contestants) - 1
	for i, one := range contestants[:last] {
		fmt.Fprintf(w, "%s\t", one.name)
		for _, column := range columns {
			ratio := middle(all, func(r round) float64 { return column.of(r[i]) / column.of(r[last]) })
			fmt.Fprintf(w, "%s %.2f\t", t.head(column.head), ratio)
		}
		fmt.Fprintln(w)
	}
}

// middle is the median of a figure over the rounds.
func middle(all []round, figure func(round) float64) float64 {
	values := make([]float64, len(all))
	for i, r := range all {
		values[i] = figure(r)
	}
	slices.Sort(values)
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}
