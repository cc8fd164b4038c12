package programs

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"errand/internal/bus"
	"errand/internal/retry"
	"errand/pkg/clients"
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

// Wire assembles a program that reads a list from a client of its service: what runs until
// ctx ends, and what says why it is not ready, "" if it is.
type Wire[C any] func(Polling, C) (run func(context.Context) error, fault func() string, err error)

// Poll connects a program that reads the sending log and runs it until ctx ends.
func (c *Common) Poll(ctx context.Context, service *MailAPI, wire Wire[*mail.Client]) error {
	client := func(opts ...clients.Option) (*mail.Client, error) { return service.client(false, opts...) }
	return poll(ctx, c, polled[*mail.Client]{name: bus.LogPoller, url: service.APIURL, streams: c.streams(bus.MailDeliveries, bus.MailEvents),
		client: client, conns: 1, renew: service.renew, export: (*metrics).ofDeliveries}, wire)
}

// PollTransactions is Poll for a program that reads the transaction list, and meanwhile looks
// up open enrollments and callbacks.
func (c *Common) PollTransactions(ctx context.Context, service *MandateAPI, wire Wire[*mandate.Client]) error {
	return poll(ctx, c, polled[*mandate.Client]{name: bus.TransactionPoller, url: service.APIURL, streams: c.streams(bus.MandateEvents),
		client: service.client, conns: 3, renew: service.renew, export: (*metrics).ofTransactions}, wire)
}

// polled is a program that reads a list, and how it calls the service.
type polled[C any] struct {
	name, url string
	streams   []string
	client    func(...clients.Option) (C, error)
	conns     int // how many calls it makes at once
	renew     func(C) func() (bool, error)
	export    func(*metrics) // registers the metrics of the list
}

func poll[C any](ctx context.Context, c *Common, p polled[C], wire Wire[C]) error {
	_, noClient := p.client(c.insecure()...)
	if err := errors.Join(c.validate(), noClient); err != nil {
		return err
	}
	calls, limit := newObserver(c.RetryMax), c.limit(ctx)
	api, err := p.client(c.options(p.conns, calls, limit)...)
	if err != nil {
		return err
	}
	r, err := c.start(ctx, p.name, p.url)
	if err != nil {
		return err
	}
	defer r.close()
	if _, err := r.needs(ctx, nil, p.streams...); err != nil {
		return err
	}
	r.throttle(ctx, c, limit)
	p.export(r.metrics)
	calls.attach(r, p.renew(api))
	run, fault, err := wire(Polling{JetStream: r.js, Publisher: r.publisher, Logger: r.log,
		Policy:      c.policy(),
		Matched:     func(m messages.Confidence) { r.metrics.matched.WithLabelValues(string(m)).Inc() },
		Published:   func(status string, n int) { r.metrics.deliveries.WithLabelValues(status).Add(float64(n)) },
		Transaction: r.metrics.transactions.published,
		LookedUp:    r.metrics.transactions.lookedUp,
		ReadThrough: func(ago time.Duration) { r.metrics.readThrough(ago); r.read.Store(true) }}, api)
	if err != nil {
		return err
	}
	r.ready.add(fault)
	return r.work(ctx, c.ShutdownGrace, func(ctx, _ context.Context) error { return run(ctx) })
}
