package app

import (
	"context"
	"os"
	"runtime/debug"
	"sync/atomic"
	"time"

	_ "time/tzdata" // a minimal container has none

	"github.com/prometheus/client_golang/prometheus"

	"errand/internal/bus"
	"errand/internal/consumer"
	"errand/internal/enroll"
	"errand/internal/query"
	"errand/internal/retry"
	"errand/pkg/clients"
	"errand/pkg/clients/mandate"
	"errand/pkg/messages"
)

// MandateConsumer is the program that enrolls payers and lists transactions.
type MandateConsumer struct {
	Common
	Requests
	MandateAPI
}

// MandateAPI says where the e-mandate service is and what it wants to see.
type MandateAPI struct {
	APIURL             string `name:"api-url" env:"MANDATE_API_URL" placeholder:"URL" help:"Address of the e-mandate service, v3." group:"upstream"`
	APIV2URL           string `name:"api-v2-url" env:"MANDATE_API_V2_URL" placeholder:"URL" help:"Address of its v2 interface; needed for --api-version v2." group:"upstream"`
	APIVersion         string `name:"api-version" env:"MANDATE_API_VERSION" default:"v3" enum:"v3,v2" help:"Version that enrollments are made with: v3 or v2." group:"upstream"`
	APIToken           string `name:"api-token" env:"MANDATE_API_TOKEN" help:"Access token; better given by the environment or --api-token-file than as a flag." group:"upstream"`
	APITokenFile       string `name:"api-token-file" env:"MANDATE_API_TOKEN_FILE" placeholder:"FILE" help:"File that holds the access token." group:"upstream"`
	PortalKey          string `env:"MANDATE_PORTAL_KEY" help:"Portal key for requests that name none." group:"upstream"`
	PortalKeyFile      string `env:"MANDATE_PORTAL_KEY_FILE" placeholder:"FILE" help:"File that holds the portal key." group:"upstream"`
	ChecksumSecret     string `env:"MANDATE_CHECKSUM_SECRET" help:"Secret to sign requests with that bring no checksum." group:"upstream"`
	ChecksumSecretFile string `env:"MANDATE_CHECKSUM_SECRET_FILE" placeholder:"FILE" help:"File that holds the checksum secret." group:"upstream"`
	ChecksumAmount     string `env:"MANDATE_CHECKSUM_AMOUNT" default:"shortest" enum:"shortest,fixed2" help:"How amounts are written and signed: shortest (100, 100.5) or fixed2 (100.00)." group:"upstream"`
	Timezone           string `env:"MANDATE_TIMEZONE" default:"Asia/Kuala_Lumpur" help:"Time zone of the service's dates." group:"upstream"`
}

// client makes the client; an *Invalid names the variable that is wrong.
func (a *MandateAPI) client(opts ...clients.Option) (*mandate.Client, error) {
	if a.APIURL == "" {
		return nil, &Invalid{"MANDATE_API_URL", "is not set: the address of the e-mandate service, such as https://mandates.example.com"}
	}
	if a.APIVersion == "v2" && a.APIV2URL == "" {
		return nil, &Invalid{"MANDATE_API_V2_URL", "is not set, and MANDATE_API_VERSION is v2"}
	}
	token, portal, checksum, err := a.secrets()
	if err != nil {
		return nil, err
	}
	format := ""
	if a.ChecksumAmount == "fixed2" {
		format = "fixed2"
	}
	config := mandate.Config{URL: a.APIURL, AmountFormat: format, Token: token, PortalKey: portal, ChecksumSecret: checksum}
	c, err := mandate.New(config, opts...)
	if err != nil {
		return nil, &Invalid{"MANDATE_API_URL", err.Error()}
	}
	if config.V2URL, config.Version = a.APIV2URL, a.APIVersion; config.Version == "v2" {
		if c, err = mandate.New(config, opts...); err != nil {
			return nil, &Invalid{"MANDATE_API_V2_URL", err.Error()}
		}
	}
	return c, nil
}

// secrets are those of the environment and of the files as they are now.
func (a *MandateAPI) secrets() (token, portal, checksum clients.Secret, err error) {
	if token, err = secret("MANDATE_API_TOKEN", a.APIToken, a.APITokenFile); err != nil {
		return token, portal, checksum, err
	}
	if token.Empty() {
		return token, portal, checksum, &Invalid{"MANDATE_API_TOKEN", "is not set: the access token of the e-mandate service (or MANDATE_API_TOKEN_FILE)"}
	}
	if portal, err = secret("MANDATE_PORTAL_KEY", a.PortalKey, a.PortalKeyFile); err != nil {
		return token, portal, checksum, err
	}
	checksum, err = secret("MANDATE_CHECKSUM_SECRET", a.ChecksumSecret, a.ChecksumSecretFile)
	return token, portal, checksum, err
}

// renew gives c the secrets of the files as they are now; nil if there are no files.
func (a *MandateAPI) renew(c *mandate.Client) func() (bool, error) {
	if a.APITokenFile == "" && a.PortalKeyFile == "" && a.ChecksumSecretFile == "" {
		return nil
	}
	return func() (bool, error) {
		token, portal, checksum, err := a.secrets()
		if err != nil {
			return false, err
		}
		return c.Renew(token, portal, checksum)
	}
}

// Run works until ctx ends and everything in hand is settled.
func (p *MandateConsumer) Run(ctx context.Context) error {
	if err := p.Common.validate(); err != nil {
		return err
	}
	if err := p.Requests.validate(); err != nil {
		return err
	}
	zone, err := time.LoadLocation(p.Timezone)
	if err != nil {
		return &Invalid{"MANDATE_TIMEZONE", "is no time zone name such as Asia/Kuala_Lumpur"}
	}
	if os.Getenv("GOGC") == "" {
		// What is in hand is small: half the collections cost 3 MB of memory.
		debug.SetGCPercent(200)
	}
	hold := &consumer.Hold{Interval: p.RetryMax}
	saw := &observer{hold: hold, renewal: renewal{every: p.RetryMax}}
	api, err := p.client(p.options(p.Concurrency, saw)...)
	if err != nil {
		return err
	}

	r, err := p.start(ctx, "mandate-consumer")
	if err != nil {
		return err
	}
	defer r.close()
	queues, err := r.needs(ctx, []bus.Queue{bus.EnrollQueue, bus.TransactionsQueue}, bus.MandateEvents, bus.DeadLetters)
	if err != nil {
		return err
	}
	hold.Log, saw.metrics = r.log, r.metrics
	saw.renewal.log, saw.renewal.again = r.log, p.renew(api)
	slots := make(consumer.Slots, p.Concurrency)
	r.watch(hold)
	log := bus.Log{Publisher: r.publisher, Source: "/errand/mandate-consumer"}
	policy := p.policy(func() bool { return hold.Active() || ctx.Err() != nil })

	enrollments := &consumer.Consumer[messages.EnrollRequest]{
		Operation: messages.Enroll, Conn: r.nc, Source: queues[bus.EnrollQueue.Name], Decode: messages.DecodeEnroll, Writes: true,
		Handle: (&enroll.Handler{Upstream: api, Policy: policy, Timeout: p.UpstreamTimeout, Zone: zone}).Handle,
		Log:    log, Dead: r.publisher, Hold: hold, Slots: slots, GiveUpAfter: p.GiveUpAfter, Logger: r.log, Settled: r.metrics.request,
	}
	listings := &consumer.Consumer[messages.TransactionsRequest]{
		Operation: messages.Transactions, Conn: r.nc, Source: queues[bus.TransactionsQueue.Name], Decode: messages.DecodeTransactions,
		Handle: (&query.Transactions{Upstream: api, Policy: policy}).Handle,
		Log:    log, Dead: r.publisher, Hold: hold, Slots: slots, GiveUpAfter: p.GiveUpAfter, Logger: r.log, Settled: r.metrics.request,
	}
	resolver, err := p.resolver(r, log, policy)
	if err != nil {
		return err
	}
	r.metrics.ofRequests(hold, hands{p.Concurrency, []func() int{enrollments.InHand, listings.InHand}, &saw.underWay}, messages.Enroll, messages.Transactions)
	r.ready.add(enrollments.Fault)
	r.ready.add(listings.Fault)
	return r.work(ctx, p.ShutdownGrace, enrollments.Run, listings.Run, resolver)
}

// resolver makes what looks uncertain enrollments up again. It has a client of its own:
// a list that is not shown to us must not hold the requests.
func (p *MandateConsumer) resolver(r *runtime, log bus.Log, policy retry.Policy) (func(ctx, hard context.Context) error, error) {
	saw := &observer{renewal: renewal{every: p.RetryMax, log: r.log}, metrics: r.metrics}
	api, err := p.client(p.options(1, saw)...)
	if err != nil {
		return nil, err
	}
	saw.renewal.again = p.renew(api)
	resolved := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "errand_resolved_total",
		Help: "Uncertain enrollments that the transaction list told more of, by outcome."}, []string{"outcome"})
	r.metrics.registry.MustRegister(resolved)
	for _, outcome := range []messages.State{messages.Succeeded, messages.Failed} {
		resolved.WithLabelValues(string(outcome))
	}
	resolver := &enroll.Resolver{Upstream: api, Policy: policy, Log: log, Next: log.Uncertain, Logger: r.log,
		Told: func(outcome messages.State) { resolved.WithLabelValues(string(outcome)).Inc() }}
	return func(ctx, _ context.Context) error { return resolver.Run(ctx) }, nil
}

// options are what all clients of a program share.
func (c *Common) options(conns int, saw *observer) []clients.Option {
	opts := []clients.Option{clients.Timeout(c.UpstreamTimeout), clients.MaxConns(conns), clients.Observe(saw.call), clients.UnderWay(&saw.underWay)}
	if c.AllowPlainHTTP {
		opts = append(opts, clients.AllowPlainHTTP())
	}
	if c.Transport != nil {
		opts = append(opts, clients.Transport(c.Transport))
	}
	return opts
}

// observer passes every upstream call on to whom it concerns.
type observer struct {
	renewal  renewal
	hold     *consumer.Hold // nil: the program takes no requests
	metrics  *metrics
	underWay atomic.Int64 // calls
}

func (o *observer) call(c clients.Call) {
	o.renewal.saw(c) // first: the next probe has the new secrets
	if o.hold != nil {
		o.hold.Saw(c)
	}
	o.metrics.call(c)
}
