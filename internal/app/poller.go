package app

import (
	"context"
	"time"

	"errand/internal/bus"
	"errand/internal/poll"
	"errand/pkg/messages"
)

// LogPoller is the program that turns the sending log into delivery events.
type LogPoller struct {
	Common
	MailAPI
	Interval time.Duration `env:"POLL_INTERVAL" default:"10s" help:"Pause between two sweeps of the log." group:"program"`
	Limit    int           `env:"POLL_LIMIT" default:"100" help:"Rows to ask for on a page." group:"program"`
	Overlap  time.Duration `env:"POLL_OVERLAP" default:"15m" help:"How far behind the newest row each sweep reads again, for rows that came late or changed." group:"program"`

	Since         string        `env:"POLL_SINCE" help:"How far back the first start tells a log that is older: a time (2026-01-31T00:00:00Z) or a duration (72h). Left out: the whole log." group:"program"`
	Recipients    int           `env:"POLL_RECIPIENTS" default:"10000000" help:"Recipients to know at most, to match rows to requests by; a batch counts as 12 more. 10 million take half a gigabyte, and a whole one at the peak; beyond it the oldest are forgotten; 0 for any number." group:"program"`
	ReportAfter   time.Duration `env:"REPORT_AFTER" default:"72h" help:"How long after its outcome the summary of a request is final, whatever is still queued." group:"program"`
	ConcludeAfter time.Duration `env:"CONCLUDE_AFTER" default:"1h" help:"How far beyond a call of unknown fate the log must be known without a row of it, to conclude that it was not sent." group:"program"`
	OverdueAfter  time.Duration `env:"OVERDUE_AFTER" default:"0s" help:"How long after its acceptance a recipient without a row is told to be overdue; 0 for never." group:"program"`
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
	case p.Recipients < 0:
		return &Invalid{"POLL_RECIPIENTS", "must not be negative"}
	case p.ReportAfter <= 0:
		return &Invalid{"REPORT_AFTER", "must be longer than nothing, for example 72h"}
	case p.ConcludeAfter <= 0: // a log is never known to the very moment: it would mean sent twice
		return &Invalid{"CONCLUDE_AFTER", "must be longer than nothing, for example 1h"}
	case p.OverdueAfter < 0:
		return &Invalid{"OVERDUE_AFTER", "must not be negative"}
	}
	since, err := p.since(time.Now())
	if err != nil {
		return err
	}
	saw := &observer{renewal: renewal{every: p.RetryMax}}
	api, err := p.client(p.options(1, saw)...)
	if err != nil {
		return err
	}

	r, err := p.start(ctx, "log-poller")
	if err != nil {
		return err
	}
	defer r.close()
	if _, err := r.needs(ctx, nil, bus.MailDeliveries, bus.MailEvents); err != nil {
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
		Interval: p.Interval, Limit: p.Limit, Overlap: p.Overlap, Since: since, Logger: r.log,
		Reports: poll.Reports{Requests: sink, Recipients: p.Recipients,
			ReportAfter: p.ReportAfter, ConcludeAfter: p.ConcludeAfter, OverdueAfter: p.OverdueAfter,
			Matched: func(c messages.Confidence) { r.metrics.matched.WithLabelValues(string(c)).Inc() }},
		Told: func(status string, n int) { r.metrics.deliveries.WithLabelValues(status).Add(float64(n)) },
		Lag:  r.metrics.readThrough}
	r.ready.add(poller.Fault)
	return r.work(ctx, p.ShutdownGrace, func(ctx, _ context.Context) error { return poller.Run(ctx) })
}

// since reads POLL_SINCE; zero: everything.
func (p *LogPoller) since(now time.Time) (time.Time, error) {
	if p.Since == "" {
		return time.Time{}, nil
	}
	if at, err := time.Parse(time.RFC3339, p.Since); err == nil {
		return at, nil
	}
	back, err := time.ParseDuration(p.Since)
	if err != nil || back <= 0 {
		return time.Time{}, &Invalid{"POLL_SINCE", "must be a time such as 2026-01-31T00:00:00Z, or a duration such as 72h"}
	}
	return now.Add(-back), nil
}
