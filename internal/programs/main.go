// Package programs has the programs: a struct of settings with one straight Run each. It alone ends a process.
//
//	main.go      parse the command line and the environment       ─► exit 2
//	settings.go  refuse settings that cannot work                 ─► exit 2
//	runtime.go   admin server (admin.go), connection, traces; run until SIGTERM and finish what is in flight ─► exit 0, or 1
//	check.go     are the streams and consumers there? again every few seconds, for /readyz
//	upstream.go  a client with a rate and secrets (secrets.go)
//	Run          wire handlers or sweeps, defined elsewhere, to consumers and streams
//
// A program decides nothing about requests. A new setting is a field of its struct and a line of its Run.
package programs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log" //nolint:depguard // only to silence it
	"maps"
	"os"
	"os/signal"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"unicode"

	"github.com/alecthomas/kong"

	"errand/internal/bus"
	"errand/internal/typo"
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
	release, revision, goVersion := build()
	version := fmt.Sprintf("%s %s (%s, %s)", name, release, revision, goVersion)
	parser, err := kong.New(cli, kong.Name(name), kong.Description(description), kong.UsageOnError(),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}), kong.Vars{"version": version}, kong.Embed(&struct {
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

// misspelling is a variable that no setting reads, and the settings that may have been meant.
type misspelling struct{ variable, meant string }

func (m misspelling) String() string {
	return m.variable + ": no setting has this name; was " + m.meant + " meant?"
}

// injected are the variables that Kubernetes sets for each service of a namespace: one named nats sets NATS_PORT.
var injected = regexp.MustCompile(`(_SERVICE_(HOST|PORT(_.*)?)|_PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

// misspelt returns the variables whose names are close to a setting's but not equal. Short names are close to anything.
func misspelt(parser *kong.Kong, environment []string) (all []misspelling) {
	settings := map[string]bool{}
	var visit func(*kong.Node)
	visit = func(n *kong.Node) {
		for _, flag := range n.Flags {
			for _, variable := range flag.Envs {
				settings[variable] = true
			}
		}
		for _, child := range n.Children {
			visit(child)
		}
	}
	visit(parser.Model.Node)
	names := slices.Sorted(maps.Keys(settings))
	for _, entry := range environment {
		variable, _, _ := strings.Cut(entry, "=")
		if settings[variable] || injected.MatchString(variable) {
			continue
		}
		likely := slices.DeleteFunc(slices.Clone(names), func(name string) bool {
			wrong := 2
			if len(name) < 9 {
				wrong = 1
			}
			return len(name) < 6 || typo.Distance(variable, name) > wrong
		})
		if len(likely) > 0 {
			all = append(all, misspelling{variable, strings.Join(likely, " or ")})
		}
	}
	return all
}

// release and commit are set by the build of a release:
//
//	go build -ldflags "-X errand/internal/programs.release=1.4.0 -X errand/internal/programs.commit=<hash>"
var release, commit string

// build is what this program was built from: its version ("dev" if not a release), commit ("unknown" if so) and Go version.
func build() (version, revision, goVersion string) {
	revision, goVersion = commit, "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		goVersion = info.GoVersion
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				revision = cmp.Or(revision, s.Value)
			}
		}
	}
	return cmp.Or(release, "dev"), cmp.Or(revision, "unknown"), goVersion
}

// Version is the release of this program; "dev" for any other build.
func Version() string {
	version, _, _ := build()
	return version
}
