package programs

import (
	"context"
	"errors"
	"os"
	"runtime/debug"
	"time"

	_ "time/tzdata" // a minimal container has none

	"github.com/prometheus/client_golang/prometheus"

	"errand/internal/bus"
	"errand/internal/history"
	"errand/internal/requests/consumer"
	"errand/internal/requests/enroll"
	"errand/internal/requests/hold"
	"errand/internal/requests/query"
	"errand/internal/throttle"
	"errand/pkg/clients"
	"errand/pkg/clients/mandate"
	"errand/pkg/messages"
)

// MandateConsumer is the program that enrolls payers and lists transactions.
type MandateConsumer struct {
	Common
	Requests
	MandateAPI
	Callbacks
	EventPayerData string `env:"EVENT_PAYER_DATA" default:"full" enum:"full,none" help:"What events hold of payers: full (answers and records of the service as they are) or none (of them the link, order number, amount, dates, frequency and state)." group:"program"`
}

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
	Timezone       string `env:"MANDATE_TIMEZONE" default:"Asia/Kuala_Lumpur" help:"Time zone of the service's dates." group:"upstream"`
}

// Checksum is the secret of the field checksum.
type Checksum struct {
	ChecksumSecret     string `name:"checksum-secret" env:"MANDATE_CHECKSUM_SECRET" help:"Secret of the field checksum: requests without one are signed, and that of callbacks is checked." group:"upstream"`
	ChecksumSecretFile string `name:"checksum-secret-file" env:"MANDATE_CHECKSUM_SECRET_FILE" placeholder:"FILE" help:"File with the checksum secret." group:"upstream"`
}

// Secret is the secret as it is now.
func (c *Checksum) Secret() (clients.Secret, error) {
	return secret("MANDATE_CHECKSUM_SECRET", c.ChecksumSecret, c.ChecksumSecretFile)
}

// client makes the client; an *Invalid names the variable that is wrong.
func (a *MandateAPI) client(opts ...clients.Option) (*mandate.Client, error) {
	token, portal, checksum, err := a.secrets()
	if err := errors.Join(
		Check(a.APIURL == "", "MANDATE_API_URL", "is not set: the address of the e-mandate service, such as https://mandates.example.com"),
		Check(a.APIVersion == "v2" && a.APIV2URL == "", "MANDATE_API_V2_URL", "is not set, and MANDATE_API_VERSION is v2"), err); err != nil {
		return nil, err
	}
	format := ""
	if a.ChecksumAmount == "fixed2" {
		format = "fixed2"
	}
	config := mandate.Config{URL: a.APIURL, AmountFormat: format, Token: token, PortalKey: portal, ChecksumSecret: checksum}
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

// secrets are those of the environment and of the files as they are now.
func (a *MandateAPI) secrets() (token, portal, checksum clients.Secret, err error) {
	token, noToken := secret("MANDATE_API_TOKEN", a.APIToken, a.APITokenFile)
	if noToken == nil {
		noToken = Check(token.Empty(), "MANDATE_API_TOKEN", "is not set: the access token of the e-mandate service (or MANDATE_API_TOKEN_FILE)")
	}
	portal, noPortal := secret("MANDATE_PORTAL_KEY", a.PortalKey, a.PortalKeyFile)
	checksum, noChecksum := a.Secret()
	return token, portal, checksum, errors.Join(noToken, noPortal, noChecksum)
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
		return c.SetCredentials(token, portal, checksum)
	}
}

// Run works until ctx ends and all requests in flight are settled.
func (p *MandateConsumer) Run(ctx context.Context) error {
	zone, noZone := time.LoadLocation(p.Timezone)
	_, noClient := p.client(p.insecure()...)
	returnURL, noCallbacks := p.addresses(p.AllowPlainHTTP)
	if err := errors.Join(p.Common.validate(), p.Requests.validate(), noClient, noCallbacks,
		Check(noZone != nil, "MANDATE_TIMEZONE", "is not a time zone name such as Asia/Kuala_Lumpur")); err != nil {
		return err
	}
	if os.Getenv("GOGC") == "" {
		// Requests are small: half as many garbage collections cost only 3 MB of memory.
		debug.SetGCPercent(200)
	}
	shared, limit := newObserver(p.RetryMax), p.limit(ctx)
	api, err := p.client(p.options(p.Concurrency, shared, limit)...)
	if err != nil {
		return err
	}

	r, err := p.start(ctx, "mandate-consumer", p.enrollURL())
	if err != nil {
		return err
	}
	defer r.close()
	found, err := r.needs(ctx, []bus.Queue{bus.EnrollQueue, bus.TransactionsQueue}, p.streams(bus.MandateRequests, bus.MandateEvents, bus.DeadLetters)...)
	if err != nil {
		return err
	}
	r.throttle(ctx, &p.Common, limit)
	shared.attach(r, p.renew(api))
	store := bus.EventStore{Publisher: r.publisher, Source: "/errand/mandate-consumer"}
	caller := p.caller(ctx, &p.Common, limit)
	enrollHold, listHold := r.hold(messages.Enroll, "mandate service (enroll)", p.RetryMax), r.hold(messages.Transactions, "mandate service (transactions)", p.RetryMax)
	enrollHold.Read = reading(caller.Slots, func(ctx context.Context) error { // reading a page of the list is harmless
		_, err := api.TransactionsPage(ctx, mandate.Filter{}, 1, nil)
		return err
	})
	settings := p.settings(r, store)
	enrollments := consumer.New(settings, found.Queues[bus.EnrollQueue.Name], enrollHold,
		consumer.Enrollments((&enroll.Handler{Upstream: api, Caller: caller, Zone: zone, ReturnURL: returnURL, WithoutPayer: p.withoutPayer()}).Handle))
	listings := consumer.New(settings, found.Queues[bus.TransactionsQueue.Name], listHold,
		consumer.Listings((&query.Transactions{Upstream: api, Caller: caller, WithoutPayer: p.withoutPayer()}).Handle))
	resolver, err := p.resolver(r, store, zone, enrollHold, limit)
	if err != nil {
		return err
	}
	r.metrics.ofRequests(workers{p.Concurrency, []func() int{enrollments.Requests, listings.Requests}, &shared.underWay}, messages.Enroll, messages.Transactions)
	r.ready.add(enrollments.Fault)
	r.ready.add(listings.Fault)
	return r.work(ctx, p.ShutdownGrace, enrollments.Run, listings.Run, resolver)
}

// enrollURL is the address that enrollments go to.
func (a *MandateAPI) enrollURL() string {
	if a.APIVersion == "v2" {
		return a.APIV2URL
	}
	return a.APIURL
}

// withoutPayer reports whether events are to hold nothing of payers.
func (p *MandateConsumer) withoutPayer() bool { return p.EventPayerData == "none" }

// resolver makes the part that looks uncertain enrollments up again. It has its own client,
// so that it takes no slot from requests.
func (p *MandateConsumer) resolver(r *runtime, store bus.EventStore, zone *time.Location, held *hold.Hold, limit *throttle.Limit) (func(ctx, hard context.Context) error, error) {
	own := newObserver(p.RetryMax)
	api, err := p.client(p.options(1, own, limit)...)
	if err != nil {
		return nil, err
	}
	own.attach(r, p.renew(api))
	resolved := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "errand_resolved_total",
		Help: "Uncertain enrollments that the transaction list resolved, by outcome."}, []string{"outcome"})
	r.metrics.registry.MustRegister(resolved)
	for _, outcome := range []messages.State{messages.Succeeded, messages.Failed} {
		resolved.WithLabelValues(string(outcome))
	}
	resolver := &enroll.Resolver{Upstream: api, Policy: p.policy(), Zone: zone, Held: held.Active, Log: store, Logger: r.log, WithoutPayer: p.withoutPayer(),
		Next: func(ctx context.Context, from uint64, since time.Time) (history.Open, error) {
			return store.Open(ctx, messages.Enroll, messages.Uncertain, from, since)
		},
		Began: func(ctx context.Context, id string, before uint64) (time.Time, error) {
			return store.Began(ctx, messages.Enroll, id, before)
		},
		Resolved: func(outcome messages.State) { resolved.WithLabelValues(string(outcome)).Inc() }}
	return func(ctx, _ context.Context) error {
		resolver.Run(ctx)
		return nil
	}, nil
}
