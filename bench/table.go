package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// columns are the figures of a table.
var columns = []struct {
	head   string
	format string
	of     func(figures) float64
}{
	{"a second", "%.0f", func(f figures) float64 { return f.rate }},
	{"CPU s per 1,000", "%.3f", func(f figures) float64 { return f.cpu }},
	{"server's", "%.3f", func(f figures) float64 { return f.server }},
	{"upstream's", "%.3f", func(f figures) float64 { return f.upstream }},
	{"peak MB", "%.1f", func(f figures) float64 { return f.peak }},
}

const explanation = `
a second         enrollments, messages or rows: from the first call to the last event; a sweep from its first event
CPU s per 1,000  CPU time of the contestant, user and system, without its start
server's         the same of nats-server
upstream's       the same of the upstream; it should be equal for all
peak MB          maximum resident memory of the contestant
of the ceiling   the rate as a share of concurrency / latency
All processes share this machine: compare the ratios, which are those within a round.
`

// table has the medians of each contestant.
func table(results []result) string {
	head := []string{"", ""}
	for _, column := range columns {
		head = append(head, column.head)
	}
	lines := [][]string{append(head, "of the ceiling")}
	for _, r := range results {
		for i, who := range r.contestants {
			line := []string{r.title, who.name}
			if i > 0 {
				line[0] = ""
			}
			for _, column := range columns {
				line = append(line, fmt.Sprintf(column.format, r.spread(i, column.of).median))
			}
			share := ""
			if r.ceiling() > 0 {
				share = fmt.Sprintf("%.3f", r.spread(i, columns[0].of).median/r.ceiling())
			}
			lines = append(lines, append(line, share))
		}
	}
	return markdown(lines, 2)
}

// ratios has the ratios of the first contestant, errand, to each of the others in the same round: other load on the
// machine affects both.
func ratios(results []result) string {
	lines := [][]string{{"", "", "rate", "CPU", "server's CPU", "memory"}}
	for _, r := range results {
		for i, who := range r.contestants[1:] {
			line := []string{r.title, r.contestants[0].name + " / " + who.name}
			if i > 0 {
				line[0] = ""
			}
			for _, column := range columns {
				if column.head == "upstream's" {
					continue
				}
				s := r.ratio(i+1, column.of)
				line = append(line, fmt.Sprintf("%.2f (%.2f to %.2f)", s.median, s.low, s.high))
			}
			lines = append(lines, line)
		}
	}
	return markdown(lines, 2)
}

// summary has the median ratios of rate and CPU time, one line for each scenario.
func summary(results []result) string {
	lines := [][]string{{"errand, then divided by", "a second"}}
	rivals := slices.DeleteFunc(slices.Clone(results[0].contestants[1:]), func(c contestant) bool {
		return c.name == "limit" // it does so little that only the whole table compares with it
	})
	for i, r := range results {
		line := []string{r.title, fmt.Sprintf("%.0f", r.spread(0, columns[0].of).median)}
		for _, column := range columns[:2] {
			for _, rival := range rivals {
				if i == 0 {
					lines[0] = append(lines[0], strings.TrimSuffix(column.head, " s per 1,000")+", "+rival.name)
				}
				cell := ""
				if n := slices.IndexFunc(r.contestants, func(c contestant) bool { return c.name == rival.name }); n > 0 {
					cell = fmt.Sprintf("%.2f", r.ratio(n, column.of).median)
				}
				line = append(line, cell)
			}
		}
		lines = append(lines, line)
	}
	return markdown(lines, 1)
}

// spread is the median of some values, their minimum and their maximum.
type spread struct{ median, low, high float64 }

// spreadIn is the spread of a figure over the rounds.
func (r result) spreadIn(figure func([]figures) float64) spread {
	values := make([]float64, len(r.rounds))
	for i, round := range r.rounds {
		values[i] = figure(round)
	}
	slices.Sort(values)
	n := len(values)
	return spread{(values[(n-1)/2] + values[n/2]) / 2, values[0], values[n-1]}
}

// spread returns the spread of a contestant's figure over the rounds.
func (r result) spread(i int, of func(figures) float64) spread {
	return r.spreadIn(func(round []figures) float64 { return of(round[i]) })
}

// ratio returns the first contestant's figure divided by another's.
func (r result) ratio(i int, of func(figures) float64) spread {
	return r.spreadIn(func(round []figures) float64 { return of(round[0]) / of(round[i]) })
}

// markdown is a table whose first line is its head, aligned for a terminal, too. The first columns are texts.
func markdown(lines [][]string, texts int) string {
	widths := make([]int, len(lines[0]))
	for _, line := range lines {
		for i, cell := range line {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell), 3)
		}
	}
	var b strings.Builder
	for n, line := range lines {
		for i, cell := range line {
			gap := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i < texts {
				cell, gap = gap, cell
			}
			b.WriteString("| " + gap + cell + " ")
		}
		b.WriteString("|\n")
		if n > 0 {
			continue
		}
		for i, width := range widths {
			end := ":"
			if i < texts {
				end = "-"
			}
			b.WriteString("|-" + strings.Repeat("-", width) + end)
		}
		b.WriteString("|\n")
	}
	return b.String()
}

// thisMachine says when and where something was measured, and with which versions.
func thisMachine(ctx context.Context) (string, error) {
	commit, err := output(ctx, "git", "describe", "--always", "--dirty")
	if err != nil {
		commit = "unknown" // not a clone
	}
	return fmt.Sprintf("%s, %d cores (%s), %s/%s, %s, nats-server %s, errand %s", time.Now().UTC().Format(time.DateOnly), runtime.NumCPU(),
		cpuModel(), runtime.GOOS, runtime.GOARCH, strings.Replace(runtime.Version(), "go", "Go ", 1),
		version("github.com/nats-io/nats-server/v2"), commit), nil
}

// cpuModel is the processor's name where the system names it.
func cpuModel() string {
	text, _ := os.ReadFile("/proc/cpuinfo") // other systems have no such file
	for line := range strings.Lines(string(text)) {
		if name, value, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "model name" {
			return strings.Join(strings.Fields(value), " ")
		}
	}
	return "unknown processor"
}

// version returns the version of a module in this program.
func version(module string) string {
	info, _ := debug.ReadBuildInfo()
	for _, dep := range info.Deps {
		if dep.Path == module {
			return strings.TrimPrefix(dep.Version, "v")
		}
	}
	return "unknown"
}

// save replaces the tables of docs/why/performance.md: what is between two marks.
func save(root, text string) error {
	file := filepath.Join(root, "docs", "why", "performance.md")
	page, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	replaced, err := replace(string(page), text)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return os.WriteFile(file, []byte(replaced), 0o644)
}

func replace(page, text string) (string, error) {
	begin, end := "<!-- bench -->\n", "<!-- end of bench -->\n"
	before, rest, found := strings.Cut(page, begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		return "", fmt.Errorf("no section between %q and %q", begin, end)
	}
	return before + begin + "\n" + strings.TrimSpace(text) + "\n\n" + end + after, nil
}
