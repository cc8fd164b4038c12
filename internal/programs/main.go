// Package programs assembles the programs: configuration, wiring, the admin server,
// shutdown. It is the only place that ends a process.
//
//	parse ─► check ─► connect ─► wire ─► run until SIGTERM ─► workers finish ─► exit 0
package programs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log" //nolint:depguard // only to silence it
	"os"
	"os/signal"
	"strings"
	"syscall"
	"unicode"

	"github.com/alecthomas/kong"

	"errand/internal/bus"
)

// Exit statuses.
const (
	exitFailed = 1 // running failed
	exitConfig = 2 // bad configuration
)

// Invalid is a configuration error. It names the variable and says what is wrong.
type Invalid struct{ Variable, Problem string }

func (e *Invalid) Error() string { return e.Variable + ": " + e.Problem }

// Exit is an error that ends the program with a status of its own.
type Exit struct {
	Status int
	Err    error
}

func (e *Exit) Error() string { return e.Err.Error() }
func (e *Exit) Unwrap() error { return e.Err }

// Program is a whole program's configuration, as kong reads it.
type Program interface {
	Run(ctx context.Context) error
}

// Main parses the command line and the environment into cli, runs it until it ends or
// SIGTERM or SIGINT arrives, and exits with 0 if all is well, 1 if running failed, 2 for
// bad configuration, or the status of an *Exit. cli is a Program, or a struct of commands that are Programs.
func Main(name, description string, cli any) {
	// net/http logs unsolicited responses of an upstream there, and they may name a payer.
	log.SetOutput(io.Discard)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	os.Exit(run(ctx, name, description, cli, os.Args[1:]))
}

func run(ctx context.Context, name, description string, cli any, args []string) int {
	status := -1
	parser, err := kong.New(cli, kong.Name(name), kong.Description(description), kong.UsageOnError(),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}), kong.Vars{"version": versionLine(name)}, kong.Embed(&struct {
			Version kong.VersionFlag `help:"Show the version and exit."`
		}{}), kong.Exit(func(code int) { status = code }),
		kong.BindTo(ctx, (*context.Context)(nil)), kong.ExplicitGroups([]kong.Group{
			{Key: "nats", Title: "NATS:"}, {Key: "upstream", Title: "Upstream:"}, {Key: "program", Title: "Program:"}, {Key: "access", Title: "Access:"},
			{Key: "traces", Title: "Traces, by OpenTelemetry (its other OTEL_ variables hold too):"}}))
	if err != nil {
		fmt.Fprintln(os.Stderr, name+":", err)
		return exitFailed
	}
	parsed, err := parser.Parse(args)
	if status >= 0 { // after --help, for example
		return status
	}
	doubts := misspelt(parser, os.Environ())
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %s\n%sSee %s --help.\n", name, harmless(naming(parser, err)), lines(doubts), command(name, parsed, err))
		return exitConfig
	}
	if logs, ok := cli.(interface{ doubt([]misspelling) }); ok {
		logs.doubt(doubts)
	} else {
		fmt.Fprint(os.Stderr, lines(doubts))
		doubts = nil
	}
	if p, ok := cli.(Program); ok {
		err = p.Run(ctx)
	} else {
		err = parsed.Run()
	}
	var invalid *Invalid
	var exit *Exit
	switch {
	case errors.As(err, &exit):
		fmt.Fprintln(os.Stderr, name+":", harmless(err.Error()))
		return exit.Status
	case err == nil, ctx.Err() != nil && (errors.Is(err, bus.ErrNotUp) || errors.Is(err, context.Canceled)): // stopped before there was work
		return 0
	case errors.As(err, &invalid):
		fmt.Fprintf(os.Stderr, "%s: %s\n%sSee %s --help.\n", name, harmless(err.Error()), lines(doubts), command(name, parsed, nil))
		return exitConfig
	}
	fmt.Fprintln(os.Stderr, name+":", harmless(err.Error()))
	return exitFailed
}

// lines are the misspellings, each on a line.
func lines(doubts []misspelling) string {
	var b strings.Builder
	for _, doubt := range doubts {
		fmt.Fprintln(&b, harmless(doubt.String()))
	}
	return b.String()
}

// command is the command whose --help explains an error: the program alone where there is none.
func command(name string, parsed *kong.Context, err error) string {
	if wrong, ok := errors.AsType[*kong.ParseError](err); ok {
		parsed = wrong.Context
	}
	if parsed == nil || parsed.Selected() == nil {
		return name
	}
	return parsed.Selected().FullPath()
}

// harmless is a text without characters that control a terminal or change the order in
// which it shows others: an error may quote a server, or an event.
func harmless(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) || r == '\n' || r == '\t' {
			return r
		}
		return '\uFFFD'
	}, text)
}

// naming is a parse error that also names the variable: for a value that is not one of an
// enum, kong names the flag only.
func naming(parser *kong.Kong, err error) string {
	text := err.Error()
	for _, group := range parser.Model.AllFlags(false) {
		for _, f := range group {
			if len(f.Envs) > 0 && strings.HasPrefix(text, "--"+f.Name+" must be") {
				return f.Envs[0] + ": " + text
			}
		}
	}
	return text
}
