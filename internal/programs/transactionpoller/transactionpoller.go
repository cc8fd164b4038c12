// Package transactionpoller assembles the program transaction-poller: what reads the
// transaction list (sweep), what its records mean (transactions) and where the events go (sink).
package transactionpoller

import (
	"context"
	"errors"
	"sync"
	"time"

	"errand/internal/lists/sink"
	"errand/internal/lists/sweep"
	"errand/internal/lists/transactions"
	"errand/internal/programs"
	"errand/pkg/clients/mandate"
)

// Program turns the transaction list into events.
type Program struct {
	programs.Common
	programs.MandateAPI
	Interval       time.Duration `env:"TRANSACTIONS_INTERVAL" default:"30s" help:"Maximum pause between two looks at the newest records." group:"program"`
	FullInterval   time.Duration `env:"TRANSACTIONS_FULL_INTERVAL" default:"24h" help:"How often the whole list is read, for records that have changed." group:"program"`
	ListRate       float64       `name:"transactions-rate" env:"TRANSACTIONS_RATE" default:"2" help:"Maximum calls per second of this replica, such as 2 or 0.5; 0: only RATE and FLEET_RATE limit them." group:"program"`
	EventPayerData string        `env:"EVENT_PAYER_DATA" default:"full" enum:"full,none" help:"What events hold of payers: full (records of the service as they are) or none (of them the order number, amount, dates, frequency and state)." group:"program"`
}

// Run works until ctx ends and the page under way is published.
func (p *Program) Run(ctx context.Context) error {
	zone, noZone := time.LoadLocation(p.Timezone)
	if err := errors.Join(
		programs.Check(p.Interval <= 0, "TRANSACTIONS_INTERVAL", "must be positive (for example 30s)"),
		programs.Check(p.FullInterval <= 0, "TRANSACTIONS_FULL_INTERVAL", "must be positive (for example 24h)"),
		programs.Check(p.ListRate != 0 && !(p.ListRate >= 0.001 && p.ListRate <= 100_000), "TRANSACTIONS_RATE", "must be 0.001 to 100000 calls per second, or 0"),
		programs.Check(noZone != nil, "MANDATE_TIMEZONE", "is not a time zone name such as Asia/Kuala_Lumpur")); err != nil {
		return err
	}
	if p.Rate == 0 || p.ListRate > 0 && p.ListRate < p.Rate {
		p.Rate = p.ListRate
	}
	return p.PollTransactions(ctx, &p.MandateAPI, func(with programs.Polling, api *mandate.Client) (run func(context.Context) error, fault func() string, err error) {
		store, err := sink.NewTransactions(with.JetStream, with.Publisher, "/errand/transaction-poller")
		if err != nil {
			return nil, nil, err
		}
		read := func(ctx context.Context, number int) (mandate.Page, error) {
			return api.TransactionsPage(ctx, mandate.Filter{Limit: transactions.MaxPage}, number, nil)
		}
		list := transactions.New(transactions.Config{Read: read, Store: store, Enrollments: store, Zone: zone, WithoutPayer: p.EventPayerData == "none",
			Published: with.Transaction})
		s := &sweep.Sweeper[transactions.Record]{List: list, Sink: list, Policy: with.Policy, Logger: with.Logger, Lag: with.ReadThrough,
			Settings: sweep.Settings{Name: "mandate service (transactions)", Interval: p.Interval, Limit: perPage, Overlap: overlap, RoundEvery: p.FullInterval,
				Recent: recent, Pace: p.Rate}}
		lookUps := &transactions.LookUps{List: list, Upstream: api, Policy: with.Policy, Events: store, Publish: s.Publish, ReadLately: s.ReadLately, LookedUp: with.LookedUp, Logger: with.Logger}
		return func(ctx context.Context) error {
			ctx, stop := context.WithCancel(ctx)
			var others sync.WaitGroup
			others.Go(func() { lookUps.Run(ctx) })
			defer others.Wait()
			defer stop()
			return s.Run(ctx)
		}, s.Fault, nil
	})
}

// perPage is the size of a page in the document.
const perPage = 25

// recent is how old records are that are read again every minute: payers decide while their
// link lasts, as a rule an hour.
const recent = time.Hour

// overlap is how late a record may be listed, by its own time.
const overlap = 15 * time.Minute
