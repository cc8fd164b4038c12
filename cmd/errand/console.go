package main

import (
	"io"
	"os"
	"strings"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/rs/zerolog"
	"golang.org/x/term"
)

// console is where a command reads and writes. Tests give their own.
type console struct {
	in        io.Reader
	out, errs io.Writer
	asks      bool // somebody can answer at in and sees out
	fed       bool // in is a file or a pipe: there may be something to read
	live      bool // out is a terminal: lines may be drawn again
	colour    bool
	width     int // of the terminal, in characters
}

// standard is the process's own console. NO_COLOR and TERM=dumb are heeded.
func standard() console {
	terminal := func(f *os.File) bool { return isatty.IsTerminal(f.Fd()) || isatty.IsCygwinTerminal(f.Fd()) }
	c := console{in: os.Stdin, out: os.Stdout, errs: os.Stderr, width: 80}
	c.fed = !terminal(os.Stdin)
	dumb := os.Getenv("TERM") == "dumb"
	c.live = terminal(os.Stdout) && !dumb
	c.asks = !c.fed && terminal(os.Stdout)
	c.colour = c.live && os.Getenv("NO_COLOR") == ""
	if w, _, err := term.GetSize(int(os.Stdout.Fd())); err == nil && w > 0 {
		c.width = w
	}
	return c
}

// warnings is a log that tells somebody at the console what is wrong with NATS: a
// lost connection, a permission that is missing and otherwise looks like silence.
func (c console) warnings() zerolog.Logger {
	return zerolog.New(zerolog.ConsoleWriter{Out: c.errs, TimeFormat: time.TimeOnly, NoColor: !c.colour}).
		Level(zerolog.WarnLevel).With().Timestamp().Logger()
}

// A colour is the number of an SGR sequence.
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

// paint colours text where colours are wanted.
func (c console) paint(as colour, text string) string {
	if !c.colour || as == plain || text == "" {
		return text
	}
	return "\x1b[" + string(as) + "m" + text + "\x1b[0m"
}

// indented gives every line of a text four more spaces.
func indented(text string) string {
	return "    " + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n    ") + "\n"
}
