package programs

import (
	"context"
	"errors"
	"time"

	"errand/internal/bus"
	"errand/internal/lists/sink"
	"errand/internal/lists/sweep"
	"errand/internal/lists/transactions"
	"errand/internal/mandates"
	"errand/pkg/clients/mandate"
)

// TransactionPoller turns the transaction list into events.
type TransactionPoller struct {
	Common
	MandateAPI
	Interval       time.Duration `env:"TRANSACTIONS_INTERVAL" default:"30s" help:"Maximum pause between two looks at the newest records." group:"program"`
	FullInterval   time.Duration `env:"TRANSACTIONS_FULL_INTERVAL" default:"24h" help:"How often the whole list is read, for records that have changed." group:"program"`
	ListRate       float64       `name:"transactions-rate" env:"TRANSACTIONS_RATE" default:"2" help:"Maximum calls per second of this replica, such as 2 or 0.5; 0: only RATE and FLEET_RATE limit them." group:"program"`
	EventPayerData string        `env:"EVENT_PAYER_DATA" default:"full" enum:"full,none" help:"What events hold of payers: full (records of the service as they are) or none (of them the order number, amount, dates, frequency and state)." group:"program"`
}

const (
	perPage = 25               // the size of a page in the service's document
	recent  = time.Hour        // records this young are read again every minute: payers decide while their link lasts, as a rule an hour
	overlap = 15 * time.Minute // how late a record may be listed, by its own time
)

// Run works until ctx ends and the page under way is published.
func (p *TransactionPoller) Run(ctx context.Context) error {
	zone, noZone := p.zone()
	_, noClient := p.client(p.insecure()...)
	if err := errors.Join(p.validate(), noClient, noZone,
		invalidIf(p.Interval <= 0, "TRANSACTIONS_INTERVAL", "must be positive (for example 30s)"),
		invalidIf(p.FullInterval <= 0, "TRANSACTIONS_FULL_INTERVAL", "must be positive (for example 24h)"),
		invalidIf(!isRate(p.ListRate), "TRANSACTIONS_RATE", rateProblem)); err != nil {
		return err
	}
	if p.Rate == 0 || p.ListRate > 0 && p.ListRate < p.Rate {
		p.Rate = p.ListRate
	}

	r, _, err := p.start(ctx, bus.TransactionPoller, p.APIURL, nil, bus.MandateEvents, bus.MandateCallbacks)
	if err != nil {
		return err
	}
	defer r.close()
	r.triesEvery(max(p.Interval, p.RetryMax))
	api, _, err := connect(r, &p.Common, &p.MandateAPI, 3, r.limit(ctx, &p.Common)) // for a sweep, a look-up and a callback at once
	if err != nil {
		return err
	}
	r.metrics.ofTransactions()
	r.metrics.ofPoller(&r.ready)

	events := bus.EventStore{Publisher: r.publisher, Source: "/errand/transaction-poller"}
	store := sink.New(r.js, r.publisher, events.Source, sink.TransactionList)
	store.ReadSince = &r.metrics.readSince
	read := func(ctx context.Context, number int) (mandate.Page, error) {
		return api.TransactionsPage(ctx, mandate.Filter{Limit: transactions.MaxPage}, number, nil)
	}
	times := &mandates.Times{Zone: zone, Client: api, Policy: p.policy(), Last: events.Last, Logger: r.log}
	r.ready.notes.add(times.Differs)
	list := transactions.New(transactions.Config{Read: read, Store: store, Times: times,
		WithoutPayer: p.EventPayerData == "none", Published: r.metrics.transactions.published, Duplicate: r.duplicate, Last: events.Last})
	s := &sweep.Sweeper[transactions.Record]{List: list, Sink: list, Policy: p.policy(), Logger: r.log, Lag: r.metrics.readThrough,
		Leading: r.ready.leads,
		Settings: sweep.Settings{Name: "mandate service (transactions)", Interval: p.Interval, Limit: perPage, Overlap: overlap,
			RoundEvery: p.FullInterval, Recent: recent, Pace: p.Rate}}
	lookUps := &transactions.LookUps{List: list, Upstream: api, Policy: p.policy(), Idle: p.IdleEvery, Open: events.Open, Logger: r.log,
		Publish: s.Publish, Leads: s.Leads, ReadLately: s.ReadLately, LookedUp: r.metrics.transactions.lookedUp}
	r.ready.checks.add(s.Fault)
	r.ready.upstream.add(s.Upstream)
	return r.work(ctx, p.ShutdownGrace, r.poll(s.Run), r.poll(lookUps.Run))
}
