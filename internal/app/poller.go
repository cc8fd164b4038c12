package app

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"errand/internal/bus"
	"errand/internal/retry"
	"errand/pkg/clients/mail"
	"errand/pkg/messages"
)

// Polling is what a program that reads the sending log works with.
type Polling struct {
	JetStream jetstream.JetStream
	Publisher *bus.Publisher
	Upstream  *mail.Client
	Policy    retry.Policy
	Logger    zerolog.Logger

	Matched     func(messages.Confidence)  // counts the match of a row
	Published   func(status string, n int) // counts delivery events
	ReadThrough func(ago time.Duration)    // records how far the log is complete
}

// Validate names what is wrong in the settings of a program that reads the sending log.
func (c *Common) Validate(service *MailAPI) error {
	_, noClient := service.client(false, c.insecure()...)
	return errors.Join(c.validate(), noClient)
}

// Poll connects a program that reads the sending log and runs what wire returns until ctx
// ends; fault says why it is not ready, "" if it is.
func (c *Common) Poll(ctx context.Context, service *MailAPI, wire func(Polling) (run func(context.Context) error, fault func() string, err error)) error {
	if err := c.Validate(service); err != nil {
		return err
	}
	shared, limit := newObserver(c.RetryMax), c.limit(ctx)
	api, err := service.client(false, c.options(1, shared, limit)...)
	if err != nil {
		return err
	}

	r, err := c.start(ctx, "log-poller", service.APIURL)
	if err != nil {
		return err
	}
	defer r.close()
	if _, err := r.needs(ctx, nil, c.streams(bus.MailDeliveries, bus.MailEvents)...); err != nil {
		return err
	}
	r.throttle(ctx, c, limit)
	r.metrics.ofDeliveries()
	r.polls.Store(true)
	shared.attach(r, service.renew(api))
	run, fault, err := wire(Polling{JetStream: r.js, Publisher: r.publisher, Upstream: api, Logger: r.log,
		Policy:      c.policy(),
		Matched:     func(m messages.Confidence) { r.metrics.matched.WithLabelValues(string(m)).Inc() },
		Published:   func(status string, n int) { r.metrics.deliveries.WithLabelValues(status).Add(float64(n)) },
		ReadThrough: r.metrics.readThrough})
	if err != nil {
		return err
	}
	r.ready.add(fault)
	return r.work(ctx, c.ShutdownGrace, func(ctx, _ context.Context) error { return run(ctx) })
}
