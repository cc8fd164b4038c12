package programs

import (
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/rs/zerolog"

	"errand/internal/bus"
	"errand/internal/keyfile"
	"errand/internal/retry"
	"errand/internal/telemetry"
	"errand/pkg/clients"
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

	doubts []misspelling // logged when the program starts
}

func (b *Base) doubt(all []misspelling) { b.doubts = all }

// Check is an *Invalid where a setting is wrong. Join those of several settings, so that
// one start shows all.
func Check(wrong bool, variable, problem string) error {
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
	RetryMax        time.Duration `env:"RETRY_MAX" default:"10s" help:"Maximum wait between two calls of one delivery; also the first wait of a deferred request, and the interval of probes while an operation is held." group:"upstream"`
	RetryTries      int           `env:"RETRY_TRIES" default:"5" help:"Calls per delivery before the request is deferred." group:"upstream"`
	Rate            float64       `env:"RATE" placeholder:"N" help:"Maximum calls per second of this replica, all kinds of calls together, such as 20 or 0.5. Default: no limit." group:"upstream"`
	FleetRate       float64       `env:"FLEET_RATE" placeholder:"N" help:"Maximum calls per second of all replicas of this program together, which share it through NATS; give each the same. Default: no limit." group:"upstream"`
	AllowPlainHTTP  bool          `name:"allow-plain-http" env:"ALLOW_PLAIN_HTTP" help:"Allow an http:// upstream that is not on this machine." group:"upstream"`

	Tracing telemetry.Config `embed:"" group:"traces"`

	// Transport replaces the network to the upstream in tests.
	Transport http.RoundTripper `kong:"-"`
}

// Requests is the configuration that the two consumers of requests share.
type Requests struct {
	Concurrency int           `env:"CONCURRENCY" default:"64" help:"Calls under way at once, all operations together, at least 2; up to a quarter more requests are in flight, or one." group:"program"`
	GiveUpAfter time.Duration `env:"GIVE_UP_AFTER" default:"24h" help:"How long after publishing a request is retried, unless it has its own give_up_at; at most 7 days, and a day less than events are kept." group:"program"`
}

func (b *Base) validate() error {
	var nats error
	if err := b.NATS.Validate(); err != nil {
		nats = &Invalid{"NATS", err.Error()}
	}
	return errors.Join(nats, Check(b.ShutdownGrace <= 0, "SHUTDOWN_GRACE", "must be positive (for example 10s)"))
}

func (c *Common) validate() error {
	const positive, rate = "must be positive (for example 10s)", "must be 0.001 to 100000 calls per second (for example 20 or 0.5), or 0 for no limit"
	isRate := func(r float64) bool { return r == 0 || r >= minRate && r <= maxRate } // NaN is none
	variable, problem := c.Tracing.Fault()
	return errors.Join(c.Base.validate(),
		Check(c.UpstreamTimeout <= 0, "UPSTREAM_TIMEOUT", positive),
		Check(c.RetryFirst <= 0, "RETRY_FIRST", positive),
		Check(c.RetryMax <= 0, "RETRY_MAX", positive),
		Check(c.RetryFirst > c.RetryMax && c.RetryMax > 0, "RETRY_FIRST", "must not be longer than RETRY_MAX"),
		Check(!isRate(c.Rate), "RATE", rate),
		Check(!isRate(c.FleetRate), "FLEET_RATE", rate),
		Check(c.RetryTries < 1 || c.RetryTries > 100, "RETRY_TRIES", "must be 1 to 100"),
		Check(problem != "", variable, problem))
}

func (r *Requests) validate() error {
	return errors.Join(
		Check(r.Concurrency < 2 || r.Concurrency > 10_000, "CONCURRENCY", "must be 2 to 10000: reads and writes need one each"),
		Check(r.GiveUpAfter <= 0, "GIVE_UP_AFTER", "must be positive (for example 24h)"))
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
	if b.LogFormat == "console" || b.LogFormat == "" && isatty.IsTerminal(os.Stderr.Fd()) {
		w = zerolog.ConsoleWriter{Out: os.Stderr, TimeFormat: time.TimeOnly}
	}
	return zerolog.New(w).Level(level).With().Timestamp().Logger()
}

// secret reads a secret from its variable, or from the file that its _FILE variable
// names, without surrounding white space. It is empty if neither is set.
func secret(variable, value, file string) (clients.Secret, error) {
	if file == "" {
		return clients.NewSecret(value), usable(variable, value)
	}
	none := clients.Secret{}
	if value != "" {
		return none, &Invalid{variable, "set either it or " + variable + "_FILE, not both"}
	}
	text, err := keyfile.Read(file)
	if err != nil {
		return none, &Invalid{variable + "_FILE", err.Error()}
	}
	return clients.NewSecret(text), usable(variable+"_FILE", text)
}

// usable returns an error for a value that cannot be sent in an HTTP header. The error does not quote the value, which is secret.
func usable(variable, value string) error {
	if strings.ContainsFunc(value, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return &Invalid{variable, "contains spaces or characters that cannot be sent; is it the right value?"}
	}
	return nil
}
