// Package programs has the programs: a struct of settings with one straight Run each. It alone ends a process.
//
//	main.go      parse the command line and the environment       ─► exit 2
//	settings.go  refuse settings that cannot work                 ─► exit 2
//	runtime.go   admin server (admin.go), connection, traces
//	check.go     are the streams and consumers there? again every few seconds, for /readyz
//	upstream.go  a client with a rate (rate.go) and secrets (secrets.go, reload.go)
//	Run          wire handlers or sweeps, defined elsewhere, to consumers and streams
//	shutdown.go  run until SIGTERM, finish what is in flight       ─► exit 0, or 1
//
// A program decides nothing about requests. A new setting is a field of its struct and a line of its Run.
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

// Exit is an error that ends the program with its own exit status.
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

// Main parses the command line and the environment into cli, a Program or a struct of commands that are Programs, and runs it
// until it ends or SIGTERM or SIGINT arrives. It exits with 0, 1 if running failed, 2 for bad configuration, or an *Exit's
// status.
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
		}{}), kong.Exit(func(code int) { status = code }), kong.BindTo(ctx, (*context.Context)(nil)),
		kong.ExplicitGroups([]kong.Group{
			{Key: "nats", Title: "NATS:"}, {Key: "upstream", Title: "Upstream:"},
			{Key: "program", Title: "Program:"}, {Key: "access", Title: "Access:"},
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
	refuse := func(problem, command string) int {
		fmt.Fprintf(os.Stderr, "%s: %s\n%sSee %s --help.\n", name, harmless(problem), lines(doubts), command)
		return exitConfig
	}
	if err != nil {
		return refuse(withVariable(parser, err), command(name, parsed, err))
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
	var exit *Exit
	status = exitFailed
	switch {
	case errors.As(err, &exit):
		status = exit.Status
	case err == nil, ctx.Err() != nil && (errors.Is(err, bus.ErrNotUp) || errors.Is(err, context.Canceled)): // stopped before there was work
		return 0
	case errors.As(err, new(*Invalid)):
		return refuse(err.Error(), command(name, parsed, nil))
	}
	fmt.Fprintln(os.Stderr, name+":", harmless(err.Error()))
	return status
}

// lines are the misspellings, each on a line.
func lines(doubts []misspelling) string {
	var b strings.Builder
	for _, doubt := range doubts {
		fmt.Fprintln(&b, harmless(doubt.String()))
	}
	return b.String()
}

// command is the command whose --help explains an error, or the program where no command was found.
func command(name string, parsed *kong.Context, err error) string {
	if wrong, ok := errors.AsType[*kong.ParseError](err); ok {
		parsed = wrong.Context
	}
	if parsed == nil || parsed.Selected() == nil {
		return name
	}
	return parsed.Selected().FullPath()
}

// harmless replaces characters that control a terminal or reorder its text: an error may quote a server or an event.
func harmless(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) || r == '\n' || r == '\t' {
			return r
		}
		return '\uFFFD'
	}, text)
}

// withVariable adds the variable to a parse error: for a value that is not in an enum, kong names the flag only.
func withVariable(parser *kong.Kong, err error) string {
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
