package programs

import (
	"context"
	"errors"
	"fmt"
	goruntime "runtime"
	"time"

	"errand/internal/bus"
	"errand/internal/requests/consumer"
	"errand/internal/requests/query"
	"errand/internal/requests/send"
	"errand/internal/retry"
	"errand/internal/wire/mailkey"
	"errand/pkg/messages"
)

// MailConsumer is the program that sends mail and reads the account.
type MailConsumer struct {
	Common
	Requests
	MailAPI
	RecipientKey
	HeadersAsList   bool   `env:"MAIL_HEADERS_AS_LIST" help:"Send additional headers as a list of strings instead of an object." group:"upstream"`
	BatchSize       int    `env:"MAIL_BATCH_SIZE" default:"1000" help:"Recipients per call, 1 to 1000. The service does not say whether the recipients of one call see each other: 1 is always safe." group:"program"`
	BatchParallel   int    `env:"MAIL_BATCH_PARALLEL" default:"4" help:"Batches of one request in flight at once." group:"program"`
	SuppressBounced Period `env:"SUPPRESS_BOUNCED" default:"off" help:"Leave addresses out of messages that mail has bounced from for good within that time, such as 30d; at most 400d." group:"program"`
	MaxRecipients   int    `env:"MAIL_MAX_RECIPIENTS" default:"5000000" help:"Maximum number of recipients of one request; a request with more is invalid. 0 for no limit." group:"program"`
}

// Run works until ctx ends and all requests in flight are settled.
func (p *MailConsumer) Run(ctx context.Context) error {
	p.headersAsList = p.HeadersAsList
	secrets, noSecrets := p.Secrets()
	_, noClient := p.client(p.insecure()...)
	if err := errors.Join(p.Common.validate(), p.Requests.validate(), noClient, noSecrets,
		invalidIf(p.BatchSize < 1 || p.BatchSize > messages.MaxBatch, "MAIL_BATCH_SIZE",
			"must be 1 to 1000: the service takes no more recipients a request"),
		invalidIf(p.BatchParallel < 1 || p.BatchParallel > 100, "MAIL_BATCH_PARALLEL", "must be 1 to 100"),
		invalidIf(p.MaxRecipients < 0, "MAIL_MAX_RECIPIENTS", "must not be negative"),
		invalidIf(p.SuppressBounced.Duration > retry.SuppressionsKept, "SUPPRESS_BOUNCED",
			"must be at most 400d: bounces are kept so long")); err != nil {
		return err
	}
	defer goruntime.KeepAlive(padding())

	streams, keys := []string{bus.MailRequests, bus.MailEvents, bus.DeadLetters, bus.MailScheduled}, 1
	if p.SuppressBounced.Duration > 0 { // whichever key of theirs a bounce has
		streams, keys = append(streams, bus.Suppressions), 3
	}
	queues := append(bus.SendQueue.WithLanes(p.Lanes.Names()...), bus.AccountQueue, bus.SendSchedules)
	r, found, err := p.start(ctx, "mail-consumer", p.APIURL, queues, streams...)
	if err != nil {
		return err
	}
	defer r.close()
	p.Lanes = p.Lanes.with(found)
	if secrets, err = r.recipientSecrets(ctx, secrets, keys); err != nil {
		return err
	}
	limit := r.limit(ctx, &p.Common)
	api, calls, err := connect(r, &p.Common, &p.MailAPI, p.Concurrency, limit)
	if err != nil {
		return err
	}

	store := bus.EventStore{Publisher: r.publisher, Source: "/errand/mail-consumer"}
	caller := p.caller(ctx, &p.Common, limit)
	sendHold := r.hold(messages.Send, "email service (send)", p.RetryMax)
	accountHold := r.hold(messages.Account, "email service (account)", p.RetryMax)
	sendHold.Read = withSlot(caller.Slots, func(ctx context.Context) error {
		_, err := api.Account(ctx)
		return err
	})
	handler := &send.Handler{Upstream: api, Caller: caller, Size: p.BatchSize, Parallel: p.BatchParallel, MaxRecipients: p.MaxRecipients,
		Open: bus.Objects{Conn: r.nc}.Open, Secret: secrets[0]}
	bounced, err := r.suppressed(ctx, p.SuppressBounced.Duration)
	if err != nil {
		return err
	}
	runs := []func(ctx, hard context.Context) error{r.schedules(found, bus.SendSchedules)}
	if bounced != nil {
		handler.Suppressed, runs = keyed(bounced, secrets), append(runs, bounced.Run)
	}
	settings := p.settings(r, store)
	queue, lanes := r.pulls(found, bus.SendQueue)
	sends := consumer.New(settings, queue, sendHold, handler.Handle, send.Ended, lanes...)
	accounts := consumer.New(settings, r.pull(found.Queues[bus.AccountQueue.Name]), accountHold,
		(&query.Account{Upstream: api, Caller: caller}).Handle, query.Ended)
	r.metrics.ofRequests(workers{p.Concurrency, []func() int{sends.Requests, accounts.Requests}, &calls.underWay},
		messages.Send, messages.Account)
	r.ready.checks.add(sends.Fault)
	r.ready.checks.add(accounts.Fault)
	return r.work(ctx, p.ShutdownGrace, append(runs, sends.Run, accounts.Run)...)
}

// suppressed reads of which addresses mail bounced for good. Until it has, the program is not ready: rather it sends nothing than to
// one of these. nil: it is off.
func (r *runtime) suppressed(ctx context.Context, within time.Duration) (*bus.Suppressed, error) {
	if within == 0 {
		return nil, nil
	}
	s := &bus.Suppressed{Conn: r.nc, For: within, Logger: r.log}
	for err := s.Read(ctx); err != nil; err = s.Read(ctx) {
		err = bus.Explain(r.nc, err)
		r.ready.starting.Store("starting: the stream " + bus.Suppressions + " cannot be read: " + err.Error())
		r.log.Warn().Err(err).Msg("starting: the addresses that mail bounced from cannot be read")
		if !retry.Pause(ctx, retry.NATSCheck) {
			return nil, fmt.Errorf("%w: %w", ctx.Err(), err)
		}
	}
	r.suppressFor.Store(int64(within.Seconds()))
	r.ready.notes.add(s.Note)
	return s, nil
}

// keyed is what is known of an address, whichever of the secrets its key was made with.
func keyed(s *bus.Suppressed, secrets []*mailkey.Secret) func(address string) (time.Time, string, bool) {
	return func(address string) (time.Time, string, bool) {
		var room [3]mailkey.Key
		keys := room[:0]
		for _, secret := range secrets {
			keys = append(keys, secret.KeyOf(address))
		}
		return s.Find(keys...)
	}
}
