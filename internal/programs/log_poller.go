package programs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"errand/internal/bus"
	"errand/internal/lists/deliveries"
	"errand/internal/lists/sink"
	"errand/internal/lists/sweep"
	"errand/pkg/clients/mail"
	"errand/pkg/messages"
)

// LogPoller turns the sending log into delivery events.
type LogPoller struct {
	Common
	MailAPI
	RecipientKey
	Interval time.Duration `env:"POLL_INTERVAL" default:"10s" help:"Maximum pause between two sweeps of the log." group:"program"`
	Limit    int           `env:"POLL_LIMIT" default:"100" help:"Rows to request per page." group:"program"`
	Overlap  time.Duration `env:"POLL_OVERLAP" default:"15m" help:"How far back from the newest row the log is read again once a minute, for rows that were late or have changed. All else is read again slowly, a page a second." group:"program"`

	Since       string        `env:"POLL_SINCE" help:"How far back the first start publishes the log: a time (2026-01-31T00:00:00Z) or a period (72h, 30d). Default: the whole log." group:"program"`
	Recipients  int           `env:"POLL_RECIPIENTS" default:"10000000" help:"Maximum number of recipients of the last six days to keep for matching rows to requests. A mail to one takes 180 bytes, a recipient of a list 40. Beyond it the oldest are forgotten; 0 for no limit." group:"program"`
	LostKeys    []string      `name:"recipient-key-lost" env:"RECIPIENT_KEY_LOST" help:"Ids, as the log has them, of secrets that are lost, separated by commas: mail with their keys matches no row." group:"program"`
	ReportAfter time.Duration `env:"REPORT_AFTER" default:"72h" help:"How long after the outcome of a request its summary is final, whatever is still queued." group:"program"`
}

// Run works until ctx ends and the page under way is published.
func (p *LogPoller) Run(ctx context.Context) error {
	since, noSince := p.since(time.Now())
	secrets, noSecrets := p.Secrets()
	_, noClient := p.client(p.insecure()...)
	if err := errors.Join(p.validate(), noClient, noSince, noSecrets,
		invalidIf(p.Interval <= 0, "POLL_INTERVAL", "must be positive (for example 10s)"),
		invalidIf(p.Limit < 1 || p.Limit > 10_000, "POLL_LIMIT", "must be 1 to 10000"),
		invalidIf(p.Overlap < 0, "POLL_OVERLAP", "must not be negative"),
		invalidIf(p.Recipients < 0, "POLL_RECIPIENTS", "must not be negative"),
		invalidIf(p.ReportAfter <= 0, "REPORT_AFTER", "must be positive (for example 72h)")); err != nil {
		return err
	}

	r, found, err := p.start(ctx, bus.LogPoller, p.APIURL, nil, bus.MailDeliveries, bus.MailEvents, bus.Suppressions)
	if err != nil {
		return err
	}
	defer r.close()
	r.triesEvery(max(p.Interval, p.RetryMax))
	if secrets, err = r.recipientSecrets(ctx, secrets, 3); err != nil {
		return err
	}
	api, _, err := connect(r, &p.Common, &p.MailAPI, 1, r.limit(ctx, &p.Common))
	if err != nil {
		return err
	}
	r.metrics.ofDeliveries()
	r.metrics.ofPoller(&r.ready)

	store := sink.New(r.js, r.publisher, "/errand/log-poller", sink.SendingLog)
	store.ReadSince = &r.metrics.readSince
	log := deliveries.New(deliveries.Config{Read: api.LogPage, Store: store,
		Recipients: p.Recipients, ReportAfter: p.ReportAfter,
		Secrets:     secrets,
		LostSecrets: append(bus.LostSecrets(found.Streams[bus.MailDeliveries].Config), p.LostKeys...), Published: r.metrics.delivered,
		Suppress: func(ctx context.Context, bounces []deliveries.Bounce) error {
			all := make([]bus.Suppression, len(bounces))
			for i, b := range bounces {
				all[i] = bus.Suppression{Key: b.To, At: messages.Time{Time: b.At}, RequestID: b.RequestID, SMTP: b.SMTP}
			}
			return r.publisher.Suppress(ctx, all)
		},
		Dropped: func(n int, since time.Time) {
			r.log.Warn().Int("recipients", n).Time("matched_since", since).Msg("the oldest recipients were forgotten: raise POLL_RECIPIENTS")
		}})
	r.metrics.ofRecipients(log.Held, p.Recipients)
	r.ready.notes.add(func() string { return noteOfRecipients(log.Held(), p.Recipients) })
	s := &sweep.Sweeper[mail.Entry]{List: log, Sink: log, Policy: p.policy(), Logger: r.log, Lag: r.metrics.readThrough,
		Leading:  r.ready.leads,
		Settings: sweep.Settings{Name: "email service (logs)", Interval: p.Interval, Limit: p.Limit, Overlap: p.Overlap, Since: since}}
	r.ready.checks.add(s.Fault)
	r.ready.upstream.add(s.Upstream)
	return r.work(ctx, p.ShutdownGrace, r.poll(s.Run))
}

// noteOfRecipients says that so many recipients are close to the limit, and what follows; "" if they are not.
func noteOfRecipients(n, limit int) string {
	if limit == 0 || n <= limit*4/5 {
		return ""
	}
	return fmt.Sprintf("it keeps %d of at most %d recipients: raise POLL_RECIPIENTS, or rows of the oldest mail become unmatched",
		n, limit)
}

// since reads POLL_SINCE; the zero time means the whole log.
func (p *LogPoller) since(now time.Time) (time.Time, error) {
	if p.Since == "" {
		return time.Time{}, nil
	}
	var since When
	if err := since.UnmarshalText([]byte(p.Since)); err != nil {
		return time.Time{}, &Invalid{"POLL_SINCE", err.Error()}
	}
	at := since.From(now)
	return at, invalidIf(at.After(now), "POLL_SINCE", "is in the future")
}
