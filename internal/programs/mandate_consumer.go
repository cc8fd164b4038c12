package programs

import (
	"context"
	"errors"
	goruntime "runtime"
	"time"

	"errand/internal/bus"
	"errand/internal/callback"
	"errand/internal/mandates"
	"errand/internal/requests/consumer"
	"errand/internal/requests/enroll"
	"errand/internal/requests/hold"
	"errand/internal/requests/query"
	"errand/internal/retry"
	"errand/pkg/clients/mandate"
	"errand/pkg/messages"
)

// MandateConsumer is the program that enrolls payers and lists transactions.
type MandateConsumer struct {
	Common
	Requests
	MandateAPI
	Callbacks
	ListSettle     time.Duration `env:"LIST_SETTLE" default:"60s" help:"By when the transaction list shows what was enrolled. With on_unknown retry, a call without an answer is not repeated before." group:"upstream"`
	EventPayerData string        `env:"EVENT_PAYER_DATA" default:"full" enum:"full,none" help:"What events hold of payers: full (answers and records of the service as they are) or none (of them the link, order number, amount, dates, frequency and state)." group:"program"`
	// ResolveAges replaces retry.ResolveAges where a test waits in real time.
	ResolveAges []time.Duration `kong:"-"`
}

// Callbacks say where the service sends what becomes of an enrollment.
type Callbacks struct {
	CallbackURL string `name:"callback-url" env:"MANDATE_CALLBACK_URL" placeholder:"URL" help:"Where callback-receiver is reached from outside, such as https://callbacks.example.com/mandates: the return_url of enrollments without one is made of it. Default: none." group:"program"`
	CallbackSecrets
}

// Run works until ctx ends and all requests in flight are settled.
func (p *MandateConsumer) Run(ctx context.Context) error {
	zone, noZone := p.zone()
	_, noClient := p.client(p.insecure()...)
	returnURL, noCallbacks := p.returnURL(p.AllowPlainHTTP)
	if err := errors.Join(p.Common.validate(), p.Requests.validate(), noClient, noCallbacks, noZone,
		invalidIf(p.ListSettle <= 0, "LIST_SETTLE", "must be positive (for example 60s)")); err != nil {
		return err
	}
	defer goruntime.KeepAlive(padding())

	enrollURL := p.APIURL
	if p.APIVersion == "v2" {
		enrollURL = p.APIV2URL
	}
	r, found, err := p.start(ctx, "mandate-consumer", enrollURL,
		append(bus.EnrollQueue.WithLanes(p.Lanes.Names()...), bus.TransactionsQueue, bus.EnrollSchedules),
		bus.MandateRequests, bus.MandateEvents, bus.DeadLetters, bus.MandateScheduled)
	if err != nil {
		return err
	}
	defer r.close()
	p.Lanes = p.Lanes.with(found)
	limit := r.limit(ctx, &p.Common)
	api, calls, err := connect(r, &p.Common, &p.MandateAPI, p.Concurrency, limit)
	if err != nil {
		return err
	}
	// What the resolver and the times of the list ask for takes no slot from requests.
	aside, _, err := connect(r, &p.Common, &p.MandateAPI, 1, limit)
	if err != nil {
		return err
	}

	store := bus.EventStore{Publisher: r.publisher, Source: "/errand/mandate-consumer"}
	caller, withoutPayer := p.caller(ctx, &p.Common, limit), p.EventPayerData == "none"
	enrollHold := r.hold(messages.Enroll, "mandate service (enroll)", p.RetryMax)
	listHold := r.hold(messages.Transactions, "mandate service (transactions)", p.RetryMax)
	enrollHold.Read = withSlot(caller.Slots, func(ctx context.Context) error { // reading a page of the list is harmless
		_, err := api.TransactionsPage(ctx, mandate.Filter{}, 1, nil)
		return err
	})
	times := &mandates.Times{Zone: zone, Client: aside, Policy: p.policy(), Last: store.Last, Logger: r.log}
	r.ready.notes.add(times.Differs)
	list := &mandates.List{Client: api, Policy: p.policy(), Stop: caller.Stop, Settle: p.ListSettle, Times: times}
	settings := p.settings(r, store)
	queue, lanes := r.pulls(found, bus.EnrollQueue)
	enrollments := consumer.New(settings, queue, enrollHold,
		(&enroll.Handler{Upstream: api, List: list, Caller: caller, Zone: zone, ReturnURL: returnURL, WithoutPayer: withoutPayer}).Handle,
		enroll.Ended, lanes...)
	listings := consumer.New(settings, r.pull(found.Queues[bus.TransactionsQueue.Name]), listHold,
		(&query.Transactions{Upstream: api, Caller: caller, WithoutPayer: withoutPayer}).Handle, query.Ended)
	resolver := p.resolver(r, store, &mandates.List{Client: aside, Policy: p.policy(), Settle: retry.ResolveEnough, Times: times}, enrollHold)
	r.metrics.ofRequests(workers{p.Concurrency, []func() int{enrollments.Requests, listings.Requests}, &calls.underWay},
		messages.Enroll, messages.Transactions)
	r.ready.checks.add(enrollments.Fault)
	r.ready.checks.add(listings.Fault)
	return r.work(ctx, p.ShutdownGrace, enrollments.Run, listings.Run, r.schedules(found, bus.EnrollSchedules),
		func(ctx, _ context.Context) error { resolver.Run(ctx); return nil })
}

// resolver makes the part that looks uncertain enrollments up again.
func (p *MandateConsumer) resolver(r *runtime, store bus.EventStore, list *mandates.List, held *hold.Hold) *enroll.Resolver {
	resolved := r.metrics.counters("outcome", "errand_resolved_total",
		"Uncertain enrollments that the transaction list resolved, by outcome.")
	for _, outcome := range []messages.State{messages.Succeeded, messages.Failed} {
		resolved.WithLabelValues(string(outcome))
	}
	ages := p.ResolveAges
	if len(ages) == 0 {
		ages = retry.ResolveAges
	}
	return &enroll.Resolver{List: list, Held: held.Active, Log: store, Logger: r.log, Ages: ages,
		WithoutPayer: p.EventPayerData == "none",
		Next:         (&bus.Rare{Store: store, Operation: messages.Enroll, State: messages.Uncertain}).Next,
		Resolved:     func(outcome messages.State) { resolved.WithLabelValues(string(outcome)).Inc() }}
}

// returnURL returns what makes the return_url of enrollments without one; nil if they go without.
func (c *Callbacks) returnURL(plain bool) (func(id string) string, error) {
	secrets, err := c.secrets()
	switch {
	case err != nil:
		return nil, err
	case c.CallbackURL == "" && len(secrets) == 0:
		return nil, nil
	case c.CallbackURL == "":
		return nil, &Invalid{"MANDATE_CALLBACK_URL", "is not set, and MANDATE_CALLBACK_SECRET is: where is callback-receiver reached?"}
	case len(secrets) == 0:
		return nil, &Invalid{"MANDATE_CALLBACK_SECRET",
			"is not set, and MANDATE_CALLBACK_URL is: the same secret as callback-receiver has (or MANDATE_CALLBACK_SECRET_FILE)"}
	}
	of, err := callback.ReturnURL(c.CallbackURL, plain, secrets[0])
	if err != nil {
		err = &Invalid{"MANDATE_CALLBACK_URL", err.Error()}
	}
	return of, err
}
