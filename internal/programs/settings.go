package programs

import (
	"errors"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/rs/zerolog"

	"errand/internal/bus"
	"errand/internal/retry"
	"errand/internal/telemetry"
)

// Base is the configuration that every program has.
type Base struct {
	NATS bus.Connection `embed:"" group:"nats"`

	AdminAddr     string        `env:"ADMIN_ADDR" default:":8080" help:"Address of /healthz, /readyz and /metrics; off for none." group:"program"`
	LogLevel      string        `env:"LOG_LEVEL" default:"info" enum:"debug,info,warn,error" help:"debug, info, warn or error." group:"program"`
	LogFormat     string        `env:"LOG_FORMAT" default:"" enum:",json,console" help:"json or console; default: console on a terminal, otherwise json." group:"program"`
	ShutdownGrace time.Duration `env:"SHUTDOWN_GRACE" default:"25s" help:"How long what is in flight may take to finish after SIGTERM." group:"program"`

	// Logger replaces the program's own logger when it runs inside another program.
	Logger *zerolog.Logger `kong:"-"`
	// IdleEvery replaces retry.NATSCheck, LookAgain and PullExpiry where days of virtual time pass.
	IdleEvery time.Duration `kong:"-"`

	doubts []misspelling // logged when the program starts
}

func (b *Base) doubt(all []misspelling) { b.doubts = all }

// invalidIf returns an *Invalid if wrong is true. Join the results for several settings, so that one start shows all faults.
func invalidIf(wrong bool, variable, problem string) error {
	if !wrong {
		return nil
	}
	return &Invalid{variable, problem}
}

// Common is the configuration of a program that calls an upstream.
type Common struct {
	Base

	UpstreamTimeout time.Duration `env:"UPSTREAM_TIMEOUT" default:"30s" help:"Timeout of one call." group:"upstream"`
	RetryFirst      time.Duration `env:"RETRY_FIRST" default:"200ms" help:"Wait before the first retry of a call." group:"upstream"`
	RetryMax        time.Duration `env:"RETRY_MAX" default:"10s" help:"Maximum wait between two calls of one delivery; also the first wait of a deferred request, and the shortest interval of probes while an operation is held." group:"upstream"`
	RetryTries      int           `env:"RETRY_TRIES" default:"5" help:"Calls per delivery before the request is deferred." group:"upstream"`
	Rate            float64       `env:"RATE" placeholder:"N" help:"Maximum calls per second of this replica, all kinds of calls together, such as 20 or 0.5. Default: no limit." group:"upstream"`
	FleetRate       float64       `env:"FLEET_RATE" placeholder:"N" help:"Maximum calls per second of all replicas of this program together, which share it through NATS; give each the same. Default: no limit." group:"upstream"`
	AllowPlainHTTP  bool          `name:"allow-plain-http" env:"ALLOW_PLAIN_HTTP" help:"Allow an http:// upstream that is not on this machine." group:"upstream"`

	Tracing telemetry.Config `embed:"" group:"traces"`

	// Transport replaces the network to the upstream in tests.
	Transport http.RoundTripper `kong:"-"`
}

func (b *Base) validate() error {
	var nats error
	if err := b.NATS.Validate(); err != nil {
		nats = &Invalid{"NATS", err.Error()}
	}
	return errors.Join(nats, invalidIf(b.ShutdownGrace <= 0, "SHUTDOWN_GRACE", "must be positive (for example 10s)"))
}

func (c *Common) validate() error {
	const positive = "must be positive (for example 10s)"
	variable, problem := c.Tracing.Fault()
	return errors.Join(c.Base.validate(),
		invalidIf(c.UpstreamTimeout <= 0, "UPSTREAM_TIMEOUT", positive),
		invalidIf(c.RetryFirst <= 0, "RETRY_FIRST", positive),
		invalidIf(c.RetryMax <= 0, "RETRY_MAX", positive),
		invalidIf(c.RetryFirst > c.RetryMax && c.RetryMax > 0, "RETRY_FIRST", "must not be longer than RETRY_MAX"),
		invalidIf(!isRate(c.Rate), "RATE", rateProblem),
		invalidIf(!isRate(c.FleetRate), "FLEET_RATE", rateProblem),
		invalidIf(c.RetryTries < 1 || c.RetryTries > 100, "RETRY_TRIES", "must be 1 to 100"),
		invalidIf(problem != "", variable, problem))
}

func (c *Common) policy() retry.Policy {
	return retry.Policy{First: c.RetryFirst, Max: c.RetryMax, Tries: c.RetryTries}
}

func (b *Base) logger() zerolog.Logger {
	if b.Logger != nil {
		return *b.Logger
	}
	level, _ := zerolog.ParseLevel(b.LogLevel) // the flag's enum was checked
	zerolog.TimeFieldFormat = time.RFC3339Nano
	var w io.Writer = os.Stderr
	terminal := isatty.IsTerminal(os.Stderr.Fd())
	if b.LogFormat == "console" || b.LogFormat == "" && terminal {
		w = zerolog.ConsoleWriter{Out: os.Stderr, TimeFormat: time.TimeOnly, NoColor: !terminal || os.Getenv("NO_COLOR") != "",
			FieldsOrder: []string{"op", "request_id", "state", "reason", "http_status"}}
	}
	return zerolog.New(w).Level(level).With().Timestamp().Logger()
}
