package app

import (
	"context"
	"time"

	"errand/internal/bus"
	"errand/internal/poll"
)

// LogPoller is the program that turns the sending log into delivery events.
type LogPoller struct {
	Common
	MailAPI
	Interval time.Duration `env:"POLL_INTERVAL" default:"10s" help:"Pause between two sweeps of the log." group:"program"`
	Limit    int           `env:"POLL_LIMIT" default:"100" help:"Rows to ask for on a page." group:"program"`
	Overlap  time.Duration `env:"POLL_OVERLAP" default:"15m" help:"How far behind the newest row each sweep reads again, for rows that came late or changed." group:"program"`
}

// Run works until ctx ends and the page in hand is told.
func (p *LogPoller) Run(ctx context.Context) error {
	if err := p.validate(); err != nil {
		return err
	}
	switch {
	case p.Interval <= 0:
		return &Invalid{"POLL_INTERVAL", "must be longer than nothing, for example 10s"}
	case p.Limit < 1 || p.Limit > 10_000:
		return &Invalid{"POLL_LIMIT", "must be 1 to 10000"}
	case p.Overlap < 0:
		return &Invalid{"POLL_OVERLAP", "must not be negative"}
	}
	saw := &observer{renewal: renewal{every: p.RetryMax}}
	api, err := p.client(p.options(1, saw.call)...)
	if err != nil {
		return err
	}

	r, err := p.start(ctx, "log-poller")
	if err != nil {
		return err
	}
	defer r.close()
	if _, err := r.needs(ctx, nil, bus.MailDeliveries); err != nil {
		return err
	}
	r.metrics.ofDeliveries()
	saw.metrics = r.metrics
	saw.renewal.log, saw.renewal.again = r.log, p.renew(api)
	sink, err := bus.NewDeliveries(r.js, r.publisher, "/errand/log-poller")
	if err != nil {
		return err
	}
	poller := &poll.Poller{Upstream: api, Sink: sink, Policy: p.policy(func() bool { return ctx.Err() != nil }),
		Interval: p.Interval, Limit: p.Limit, Overlap: p.Overlap, Logger: r.log,
		Told: func(status string, n int) { r.metrics.deliveries.WithLabelValues(status).Add(float64(n)) },
		Lag:  func(d time.Duration) { r.metrics.lag.Set(d.Seconds()) }}
	r.ready.add(poller.Fault)
	return r.work(ctx, p.ShutdownGrace, func(ctx, _ context.Context) error { return poller.Run(ctx) })
}
