package main

import (
	"io"
	"os"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/rs/zerolog"
	"golang.org/x/term"
)

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
