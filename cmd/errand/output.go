package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/rs/zerolog"
	"golang.org/x/term"

	"errand/internal/style"
	"errand/pkg/messages"
)

type format struct {
	Output string `short:"o" default:"table" enum:"table,json,jsonl,name" help:"table, json, jsonl (an object per line) or name (ids)."`
}

// output has the flags of a command that only reads.
type output struct {
	NATS access `embed:"" group:"nats"`
	format
	Watch bool `help:"Show it again every two seconds, until Ctrl-C."`
}

// cell is a field of a table.
type cell struct {
	text string
	as   colour
}

func cellOf[T ~string](s T) cell { return cell{text: string(s)} }

func numberCell[T int | uint64](n T) cell { return cell{text: fmt.Sprint(n)} }

// listing is a command's output in every form.
type listing struct {
	head   []string
	rows   [][]cell
	names  []string // of the rows
	values []any    // of the rows, for JSON
	whole  any      // the JSON document; nil means values
	none   string   // what a table without rows says

	text   func(c console) // writes for people what the table lacks
	failed error           // what the exit status says
}

// add adds a row. One without cells is not in the table.
func (l *listing) add(name string, value any, cells ...cell) {
	l.names, l.values = append(l.names, name), append(l.values, value)
	if len(cells) > 0 {
		l.rows = append(l.rows, cells)
	}
}

// show writes a listing in the chosen form.
func (f format) show(c console, l listing) {
	switch f.Output {
	case "json":
		whole := l.whole
		if whole == nil {
			whole = append([]any{}, l.values...)
		}
		fmt.Fprintln(c.out, encoded(whole, true))
	case "jsonl":
		for _, v := range l.values {
			fmt.Fprintln(c.out, encoded(v, false))
		}
	case "name":
		for _, name := range l.names {
			fmt.Fprintln(c.out, printable(name))
		}
	default:
		switch {
		case len(l.rows) == 0 && l.none != "":
			fmt.Fprintln(c.out, l.none)
		case len(l.head) > 0:
			c.table(l.head, l.rows)
		}
		if l.text != nil {
			l.text(c)
		}
	}
}

// encoded returns a value as JSON that cannot control a terminal.
func encoded(v any, indent bool) string {
	text := literal(v)
	if indent {
		return pretty(text)
	}
	return style.Escape(string(text))
}

// table writes rows under a head, in columns as wide as needed. If the last column does not fit a terminal, it gets
// its own line.
func (c console) table(head []string, rows [][]cell) {
	widths := make([]int, len(head))
	all, titled := rows, head[0] != ""
	if titled {
		first := make([]cell, len(head))
		for i, title := range head {
			first[i] = cell{title, dim}
		}
		all = append([][]cell{first}, rows...)
	}
	for _, row := range all {
		for i, field := range row {
			widths[i] = max(widths[i], len([]rune(field.text)))
		}
	}
	for n, row := range all {
		line, used, last := "", 0, row[len(row)-1]
		for i, field := range row[:len(row)-1] {
			line += c.paint(field.as, printable(field.text)) + strings.Repeat(" ", widths[i]-len([]rune(field.text))+2)
			used += widths[i] + 2
		}
		shown := printable(last.text)
		if c.redraws && shown != "" && len([]rune(shown)) > c.width-used {
			if n == 0 && titled { // the title is not worth a line
				shown = ""
			} else if used > 0 {
				fmt.Fprintln(c.out, strings.TrimRight(line, " "))
				line, used = "    ", 4
			}
			if runes, room := []rune(shown), c.width-used; len(runes) > room && room > 0 {
				shown = string(runes[:room-1]) + "…"
			}
		}
		fmt.Fprintln(c.out, strings.TrimRight(line+c.paint(last.as, shown), " "))
	}
}

// stamp returns a time for a person, in the time zone of now, without the date if that is today.
func stamp(t, now time.Time) string {
	t = t.In(now.Location())
	if t.Format(time.DateOnly) == now.Format(time.DateOnly) {
		return t.Format(time.TimeOnly)
	}
	if t.Year() == now.Year() {
		return t.Format("01-02 15:04:05")
	}
	return t.Format(time.DateTime)
}

// until returns how long it is until a time, "" for none.
func until(t *messages.Time, now time.Time) string {
	switch {
	case t == nil:
		return ""
	case t.Before(now):
		return "now"
	}
	return style.Span(t.Sub(now))
}

// since returns how long ago a time was, "" for none.
func since(t *messages.Time, now time.Time) string {
	if t == nil {
		return ""
	}
	return style.Span(now.Sub(t.Time))
}

// console is where a command reads and writes.
type console struct {
	in          io.Reader
	out, errs   io.Writer
	interactive bool // a person reads out and can answer on in
	piped       bool // in is a file or a pipe
	redraws     bool // out is a terminal, where the last line can be redrawn
	colour      bool
	width       int // of the terminal, in characters
}

// standard returns the process's console. It respects NO_COLOR and TERM=dumb.
func standard() console {
	terminal := func(f *os.File) bool { return isatty.IsTerminal(f.Fd()) || isatty.IsCygwinTerminal(f.Fd()) }
	c := console{in: os.Stdin, out: os.Stdout, errs: os.Stderr, width: 80}
	c.piped = !terminal(os.Stdin)
	dumb := os.Getenv("TERM") == "dumb"
	c.redraws = terminal(os.Stdout) && !dumb
	c.interactive = !c.piped && terminal(os.Stdout)
	c.colour = c.redraws && os.Getenv("NO_COLOR") == ""
	if w, _, err := term.GetSize(int(os.Stdout.Fd())); err == nil && w > 0 {
		c.width = w
	}
	return c
}

// warnings returns a log that shows problems with NATS on the console: a lost connection or a missing permission.
func (c console) warnings() zerolog.Logger {
	return zerolog.New(zerolog.ConsoleWriter{Out: c.errs, TimeFormat: time.TimeOnly, NoColor: !c.colour}).
		Level(zerolog.WarnLevel).With().Timestamp().Logger()
}

// colour is the number of an SGR escape sequence.
type colour string

const (
	plain  colour = ""
	bold   colour = "1"
	dim    colour = "2"
	red    colour = "31"
	green  colour = "32"
	yellow colour = "33"
	cyan   colour = "36"
)

// paint colours text if the console has colours.
func (c console) paint(as colour, text string) string {
	if !c.colour || as == plain || text == "" {
		return text
	}
	return "\x1b[" + string(as) + "m" + text + "\x1b[0m"
}
