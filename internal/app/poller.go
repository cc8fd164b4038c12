package app

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"errand/internal/bus"
	"errand/internal/retry"
	"errand/internal/throttle"
	"errand/pkg/clients/mail"
	"errand/pkg/clients/mandate"
	"errand/pkg/messages"
)

// Polling is what a program that reads a list works with.
type Polling struct {
	JetStream jetstream.JetStream
	Publisher *bus.Publisher
	Policy    retry.Policy
	Logger    zerolog.Logger

	Matched     func(messages.Confidence)                           // counts the match of a row of the sending log
	Published   func(status string, n int)                          // counts delivery events
	Transaction func(messages.TransactionKind, messages.Confidence) // counts a transaction event
	LookedUp    func(by messages.TransactionBy, late time.Duration) // counts a look at a single enrollment
	ReadThrough func(ago time.Duration)                             // records how far the list is complete
}

// Validate names what is wrong in the settings of a program that reads the sending log.
func (c *Common) Validate(service *MailAPI) error {
	_, noClient := service.client(false, c.insecure()...)
	return errors.Join(c.validate(), noClient)
}

// Poll connects a program that reads the sending log and runs what wire returns until ctx
// ends; fault says why it is not ready, "" if it is.
func (c *Common) Poll(ctx context.Context, service *MailAPI, wire func(Polling, *mail.Client) (run func(context.Context) error, fault func() string, err error)) error {
	if err := c.Validate(service); err != nil {
		return err
	}
	shared, limit := newObserver(c.RetryMax), c.limit(ctx)
	api, err := service.client(false, c.options(1, shared, limit)...)
	if err != nil {
		return err
	}
	return c.poll(ctx, polled{name: "log-poller", url: service.APIURL, streams: c.streams(bus.MailDeliveries, bus.MailEvents), calls: shared, limit: limit, renew: service.renew(api),
		export: func(r *runtime) { r.metrics.ofDeliveries() }},
		func(p Polling) (func(context.Context) error, func() string, error) { return wire(p, api) })
}

// PollTransactions is Poll for a program that reads the transaction list.
func (c *Common) PollTransactions(ctx context.Context, service *MandateAPI, wire func(Polling, *mandate.Client) (run func(context.Context) error, fault func() string, err error)) error {
	_, noClient := service.client(c.insecure()...)
	if err := errors.Join(c.validate(), noClient); err != nil {
		return err
	}
	shared, limit := newObserver(c.RetryMax), c.limit(ctx)
	api, err := service.client(c.options(3, shared, limit)...) // the list, open enrollments, callbacks
	if err != nil {
		return err
	}
	return c.poll(ctx, polled{name: bus.TransactionPoller, url: service.APIURL, streams: c.streams(bus.MandateEvents), calls: shared, limit: limit, renew: service.renew(api),
		export: func(r *runtime) { r.metrics.ofTransactions() }},
		func(p Polling) (func(context.Context) error, func() string, error) { return wire(p, api) })
}

// polled is a program that reads a list, and how it calls the service.
type polled struct {
	name, url string
	streams   []string
	calls     *observer
	limit     *throttle.Limit
	renew     func() (bool, error)
	export    func(*runtime) // registers the metrics of the list
}

func (c *Common) poll(ctx context.Context, p polled, wire func(Polling) (run func(context.Context) error, fault func() string, err error)) error {
	r, err := c.start(ctx, p.name, p.url)
	if err != nil {
		return err
	}
	defer r.close()
	if _, err := r.needs(ctx, nil, p.streams...); err != nil {
		return err
	}
	r.throttle(ctx, c, p.limit)
	p.export(r)
	r.polls.Store(true)
	p.calls.attach(r, p.renew)
	run, fault, err := wire(Polling{JetStream: r.js, Publisher: r.publisher, Logger: r.log,
		Policy:      c.policy(),
		Matched:     func(m messages.Confidence) { r.metrics.matched.WithLabelValues(string(m)).Inc() },
		Published:   func(status string, n int) { r.metrics.deliveries.WithLabelValues(status).Add(float64(n)) },
		Transaction: r.metrics.transactions.published,
		LookedUp:    r.metrics.transactions.lookedUp,
		ReadThrough: r.metrics.readThrough})
	if err != nil {
		return err
	}
	r.ready.add(fault)
	return r.work(ctx, c.ShutdownGrace, func(ctx, _ context.Context) error { return run(ctx) })
}
