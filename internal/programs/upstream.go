package programs

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
	_ "time/tzdata" // a minimal container has none

	"github.com/prometheus/client_golang/prometheus"

	"errand/internal/bus"
	"errand/internal/throttle"
	"errand/pkg/clients"
	"errand/pkg/clients/mail"
	"errand/pkg/clients/mandate"
)

// MandateAPI says where the e-mandate service is and what it wants to see.
type MandateAPI struct {
	APIURL        string `name:"api-url" env:"MANDATE_API_URL" placeholder:"URL" help:"Address of the e-mandate service, v3." group:"upstream"`
	APIV2URL      string `name:"api-v2-url" env:"MANDATE_API_V2_URL" placeholder:"URL" help:"Address of its v2 interface; needed for --api-version v2." group:"upstream"`
	APIVersion    string `name:"api-version" env:"MANDATE_API_VERSION" default:"v3" enum:"v3,v2" help:"Version of the interface for enrollments: v3 or v2." group:"upstream"`
	APIToken      string `name:"api-token" env:"MANDATE_API_TOKEN" help:"Access token; better set by the environment or --api-token-file than by this flag." group:"upstream"`
	APITokenFile  string `name:"api-token-file" env:"MANDATE_API_TOKEN_FILE" placeholder:"FILE" help:"File with the access token." group:"upstream"`
	PortalKey     string `env:"MANDATE_PORTAL_KEY" help:"Portal key for requests without one." group:"upstream"`
	PortalKeyFile string `env:"MANDATE_PORTAL_KEY_FILE" placeholder:"FILE" help:"File with the portal key." group:"upstream"`
	Checksum
	ChecksumAmount string `env:"MANDATE_CHECKSUM_AMOUNT" default:"shortest" enum:"shortest,fixed2" help:"How amounts are written and signed: shortest (100, 100.5) or fixed2 (100.00)." group:"upstream"`
	Timezone       string `env:"MANDATE_TIMEZONE" default:"Asia/Kuala_Lumpur" help:"Time zone of the service's dates. The transaction list's own offset is learned." group:"upstream"`
}

// Checksum is the secret of the field checksum.
type Checksum struct {
	ChecksumSecret     string `name:"checksum-secret" env:"MANDATE_CHECKSUM_SECRET" help:"Secret of the field checksum: requests without one are signed, and that of callbacks is checked." group:"upstream"`
	ChecksumSecretFile string `name:"checksum-secret-file" env:"MANDATE_CHECKSUM_SECRET_FILE" placeholder:"FILE" help:"File with the checksum secret." group:"upstream"`
}

// MailAPI says where the email service is, and has its key.
type MailAPI struct {
	APIURL     string `name:"api-url" env:"MAIL_API_URL" placeholder:"URL" help:"Address of the email service." group:"upstream"`
	APIKey     string `name:"api-key" env:"MAIL_API_KEY" help:"API key; better set by the environment or --api-key-file than by this flag." group:"upstream"`
	APIKeyFile string `name:"api-key-file" env:"MAIL_API_KEY_FILE" placeholder:"FILE" help:"File with the API key." group:"upstream"`

	headersAsList bool // see MailConsumer
}

// zone is the time zone of the service's dates.
func (a *MandateAPI) zone() (*time.Location, error) {
	zone, err := time.LoadLocation(a.Timezone)
	return zone, invalidIf(err != nil || a.Timezone == "", "MANDATE_TIMEZONE", "is not a time zone name such as Asia/Kuala_Lumpur")
}

// client makes a client with the current secrets; an *Invalid names the variable that is wrong.
func (a *MandateAPI) client(opts ...clients.Option) (*mandate.Client, error) {
	token, portal, checksum, noSecrets := a.secrets()
	if err := errors.Join(
		invalidIf(a.APIURL == "", "MANDATE_API_URL", "is not set: the address of the e-mandate service, such as https://mandates.example.com"),
		invalidIf(a.APIVersion == "v2" && a.APIV2URL == "", "MANDATE_API_V2_URL", "is not set, and MANDATE_API_VERSION is v2"),
		noSecrets); err != nil {
		return nil, err
	}
	config := mandate.Config{URL: a.APIURL, Token: token, PortalKey: portal, ChecksumSecret: checksum}
	if a.ChecksumAmount == "fixed2" {
		config.AmountFormat = "fixed2"
	}
	c, err := mandate.New(config, opts...)
	if err != nil {
		return nil, badAddress("MANDATE_API_URL", err)
	}
	if config.V2URL, config.Version = a.APIV2URL, a.APIVersion; config.Version == "v2" {
		if c, err = mandate.New(config, opts...); err != nil {
			return nil, badAddress("MANDATE_API_V2_URL", err)
		}
	}
	return c, nil
}

// client makes a client with the current key; an *Invalid names the variable that is wrong.
func (a *MailAPI) client(opts ...clients.Option) (*mail.Client, error) {
	key, noKey := a.key()
	if err := errors.Join(
		invalidIf(a.APIURL == "", "MAIL_API_URL", "is not set: the address of the email service, such as https://mail.example.com"),
		noKey); err != nil {
		return nil, err
	}
	c, err := mail.New(mail.Config{URL: a.APIURL, Key: key, HeadersAsList: a.headersAsList}, opts...)
	if err != nil {
		return nil, badAddress("MAIL_API_URL", err)
	}
	return c, nil
}

// badAddress is the error for a service's address. It names the setting that would allow plain HTTP.
func badAddress(variable string, err error) error {
	problem := err.Error()
	if errors.Is(err, clients.ErrPlainHTTP) {
		problem += " (ALLOW_PLAIN_HTTP=true)"
	}
	return &Invalid{variable, problem}
}

// secrets reads the current secrets from the environment or their files.
func (a *MandateAPI) secrets() (token, portal, checksum clients.Secret, err error) {
	token, noToken := secret("MANDATE_API_TOKEN", a.APIToken, a.APITokenFile)
	if noToken == nil {
		noToken = invalidIf(token.Empty(), "MANDATE_API_TOKEN",
			"is not set: the access token of the e-mandate service (or MANDATE_API_TOKEN_FILE)")
	}
	portal, noPortal := secret("MANDATE_PORTAL_KEY", a.PortalKey, a.PortalKeyFile)
	checksum, noChecksum := a.secret()
	return token, portal, checksum, errors.Join(noToken, noPortal, noChecksum)
}

func (c *Checksum) secret() (clients.Secret, error) {
	return secret("MANDATE_CHECKSUM_SECRET", c.ChecksumSecret, c.ChecksumSecretFile)
}

// key reads the current key from the environment or its file.
func (a *MailAPI) key() (clients.Secret, error) {
	key, err := secret("MAIL_API_KEY", a.APIKey, a.APIKeyFile)
	if err == nil {
		err = invalidIf(key.Empty(), "MAIL_API_KEY", "is not set: the key of the email service (or MAIL_API_KEY_FILE)")
	}
	return key, err
}

// reload gives c the current secrets, and reports whether any has changed.
func (a *MandateAPI) reload(c *mandate.Client) (changed bool, err error) {
	token, portal, checksum, err := a.secrets()
	if err != nil {
		return false, err
	}
	return c.SetCredentials(token, portal, checksum)
}

// reload gives c the current key, and reports whether it has changed.
func (a *MailAPI) reload(c *mail.Client) (changed bool, err error) {
	key, err := a.key()
	if err != nil {
		return false, err
	}
	return c.SetCredentials(key)
}

// api is the configuration of one service, and C its client.
type api[C any] interface {
	client(...clients.Option) (C, error)
	reload(C) (changed bool, err error)
}

// connect makes the client of a service whose secrets are read again after a refusal. conns is how many calls it makes at
// once; limit may be nil.
func connect[C any](r *runtime, c *Common, a api[C], conns int, limit *throttle.Limit) (C, *observer, error) {
	o := &observer{metrics: r.metrics, reload: reload{every: c.RetryMax, log: r.log}}
	client, err := a.client(r.options(c, conns, o, limit)...)
	o.reload.secrets = func() (bool, error) { return a.reload(client) }
	return client, o, err
}

// observer passes every upstream call on to the reload of secrets and the metrics.
type observer struct {
	reload   reload
	metrics  *metrics
	underWay atomic.Int64 // calls
}

func (o *observer) call(c clients.Call) {
	o.reload.observe(c) // first: the next probe has the new secrets
	o.metrics.calls.WithLabelValues(c.Operation, string(c.Fate)).Observe(c.Duration.Seconds())
}

// options are common to all clients of a program.
func (r *runtime) options(c *Common, conns int, o *observer, limit *throttle.Limit) []clients.Option {
	opts := append(c.insecure(), clients.Timeout(c.UpstreamTimeout), clients.MaxConns(conns), clients.Observe(o.call),
		clients.UnderWay(&o.underWay), clients.Wrap(r.tracer.Transport))
	if limit != nil {
		opts = append(opts, clients.WaitToRead(limit.Wait))
	}
	if c.Transport != nil {
		opts = append(opts, clients.Transport(c.Transport))
	}
	return opts
}

// insecure is what ALLOW_PLAIN_HTTP permits of an upstream's address.
func (c *Common) insecure() []clients.Option {
	if c.AllowPlainHTTP {
		return []clients.Option{clients.AllowPlainHTTP()}
	}
	return nil
}

const rateProblem = "must be 0.001 to 100000 calls per second (for example 20 or 0.5), or 0 for no limit"

func isRate(perSecond float64) bool {
	return perSecond == 0 || perSecond >= 0.001 && perSecond <= 100_000
} // NaN is not

// limit returns what calls wait for, at most until ctx ends; nil means nothing. FLEET_RATE is shared with other replicas.
func (r *runtime) limit(ctx context.Context, c *Common) *throttle.Limit {
	if c.Rate == 0 && c.FleetRate == 0 {
		return nil
	}
	waits := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "errand_rate_wait_seconds",
		Help: "Time that upstream calls waited for RATE and FLEET_RATE before they began.", Buckets: durations})
	r.metrics.registry.MustRegister(waits)
	l := &throttle.Limit{Stop: ctx.Done(), Waited: func(d time.Duration) { waits.Observe(d.Seconds()) }}
	if c.Rate > 0 {
		l.Replica = throttle.NewReplica(c.Rate)
	}
	if c.FleetRate == 0 {
		return l
	}
	l.Fleet = throttle.NewFleet(c.FleetRate, bus.LeaseStore{Publisher: r.publisher, Program: r.name}, r.log)
	r.ready.checks.add(l.Fleet.Fault)
	r.metrics.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "errand_rate_leased_calls_total",
		Help: "Calls of FLEET_RATE that this replica has leased, made or not."}, l.Fleet.Leased))
	r.background(ctx, l.Fleet.Run)
	return l
}
