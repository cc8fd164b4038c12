package app

import (
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
	"errand/pkg/clients"
)

// Common is what the three programs share.
type Common struct {
	NATS bus.Connection `embed:"" group:"nats"`

	AdminAddr     string        `env:"ADMIN_ADDR" default:":8080" help:"Address of /healthz, /readyz and /metrics; off for none." group:"program"`
	LogLevel      string        `env:"LOG_LEVEL" default:"info" enum:"debug,info,warn,error" help:"debug, info, warn or error." group:"program"`
	LogFormat     string        `env:"LOG_FORMAT" default:"" enum:",json,console" help:"json or console; left out: console on a terminal, else json." group:"program"`
	ShutdownGrace time.Duration `env:"SHUTDOWN_GRACE" default:"25s" help:"How long requests in hand may take to end after SIGTERM." group:"program"`

	UpstreamTimeout time.Duration `env:"UPSTREAM_TIMEOUT" default:"30s" help:"Longest time one call may take." group:"upstream"`
	RetryFirst      time.Duration `env:"RETRY_FIRST" default:"200ms" help:"Wait before a call is repeated for the first time." group:"upstream"`
	RetryMax        time.Duration `env:"RETRY_MAX" default:"10s" help:"Longest wait between two calls of one delivery; also how often a held upstream is probed." group:"upstream"`
	RetryTries      int           `env:"RETRY_TRIES" default:"5" help:"Calls a delivery, before the request is put back." group:"upstream"`
	AllowPlainHTTP  bool          `name:"allow-plain-http" env:"ALLOW_PLAIN_HTTP" help:"Allow an http:// upstream that is not on this machine." group:"upstream"`

	// Logger replaces the program's own where it runs inside another one.
	Logger *zerolog.Logger `kong:"-"`
	// Transport replaces the network to the upstream where a test has its own.
	Transport http.RoundTripper `kong:"-"`
}

// Requests is what the two consumers of requests share.
type Requests struct {
	Concurrency int           `env:"CONCURRENCY" default:"64" help:"Requests in hand at once, the program's consumers together." group:"program"`
	GiveUpAfter time.Duration `env:"GIVE_UP_AFTER" default:"24h" help:"How long after its publishing a request is tried, unless it names give_up_at itself." group:"program"`
}

func (c *Common) validate() error {
	if err := c.NATS.Validate(); err != nil {
		return &Invalid{"NATS", err.Error()}
	}
	for _, d := range []struct {
		name string
		d    time.Duration
	}{{"UPSTREAM_TIMEOUT", c.UpstreamTimeout}, {"RETRY_FIRST", c.RetryFirst}, {"RETRY_MAX", c.RetryMax}, {"SHUTDOWN_GRACE", c.ShutdownGrace}} {
		if d.d <= 0 {
			return &Invalid{d.name, "must be longer than nothing, for example 10s"}
		}
	}
	if c.RetryFirst > c.RetryMax {
		return &Invalid{"RETRY_FIRST", "must not be longer than RETRY_MAX"}
	}
	if c.RetryTries < 1 || c.RetryTries > 100 {
		return &Invalid{"RETRY_TRIES", "must be 1 to 100"}
	}
	return nil
}

func (r *Requests) validate() error {
	if r.Concurrency < 1 || r.Concurrency > 10_000 {
		return &Invalid{"CONCURRENCY", "must be 1 to 10000"}
	}
	if r.GiveUpAfter <= 0 {
		return &Invalid{"GIVE_UP_AFTER", "must be longer than nothing, for example 24h"}
	}
	return nil
}

func (c *Common) policy(halt func() bool) retry.Policy {
	return retry.Policy{First: c.RetryFirst, Max: c.RetryMax, Tries: c.RetryTries, Halt: halt}
}

func (c *Common) logger() zerolog.Logger {
	if c.Logger != nil {
		return *c.Logger
	}
	level, _ := zerolog.ParseLevel(c.LogLevel) // the flag's enum has been held
	zerolog.TimeFieldFormat = time.RFC3339Nano
	var w io.Writer = os.Stderr
	if c.LogFormat == "console" || c.LogFormat == "" && isatty.IsTerminal(os.Stderr.Fd()) {
		w = zerolog.ConsoleWriter{Out: os.Stderr, TimeFormat: time.TimeOnly}
	}
	return zerolog.New(w).Level(level).With().Timestamp().Logger()
}

// secret reads a secret from its variable or from the file that its _FILE
// variable names; white space around it does not count. Empty: it is not set.
func secret(variable, value, file string) (clients.Secret, error) {
	if file == "" {
		return clients.NewSecret(value), sendable(variable, value)
	}
	none := clients.Secret{}
	if value != "" {
		return none, &Invalid{variable, "give it or " + variable + "_FILE, not both"}
	}
	text, err := keyfile.Read(file)
	if err != nil {
		return none, &Invalid{variable + "_FILE", err.Error()}
	}
	return clients.NewSecret(text), sendable(variable+"_FILE", text)
}

// sendable refuses what no HTTP header can carry; without the value, which is secret.
func sendable(variable, value string) error {
	if strings.ContainsFunc(value, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return &Invalid{variable, "holds spaces or characters that cannot be sent; is it the right text?"}
	}
	return nil
}
