package app

import (
	"context"

	"errand/internal/bus"
	"errand/internal/consumer"
	"errand/internal/query"
	"errand/internal/send"
	"errand/pkg/clients"
	"errand/pkg/clients/mail"
	"errand/pkg/messages"
)

// MailConsumer is the program that sends mail and reads the account.
type MailConsumer struct {
	Common
	Requests
	MailAPI
	BatchSize     int `env:"MAIL_BATCH_SIZE" default:"1000" help:"Recipients a call, 1 to 1000. Whether those of one call see each other the service does not say: 1 is always safe." group:"program"`
	BatchParallel int `env:"MAIL_BATCH_PARALLEL" default:"4" help:"Batches of one request on their way at once." group:"program"`
}

// MailAPI says where the email service is and what it wants to see.
type MailAPI struct {
	APIURL        string `name:"api-url" env:"MAIL_API_URL" placeholder:"URL" help:"Address of the email service." group:"upstream"`
	APIKey        string `name:"api-key" env:"MAIL_API_KEY" help:"API key; better given by the environment or --api-key-file than as a flag." group:"upstream"`
	APIKeyFile    string `name:"api-key-file" env:"MAIL_API_KEY_FILE" placeholder:"FILE" help:"File that holds the API key." group:"upstream"`
	HeadersAsList bool   `env:"MAIL_HEADERS_AS_LIST" help:"Send additional headers as a list of texts instead of an object." group:"upstream"`
}

// client makes the client; an *Invalid names the variable that is wrong.
func (a *MailAPI) client(opts ...clients.Option) (*mail.Client, error) {
	if a.APIURL == "" {
		return nil, &Invalid{"MAIL_API_URL", "is not set: the address of the email service, such as https://mail.example.com"}
	}
	key, err := a.key()
	if err != nil {
		return nil, err
	}
	c, err := mail.New(mail.Config{URL: a.APIURL, Key: key, HeadersAsList: a.HeadersAsList}, opts...)
	if err != nil {
		return nil, &Invalid{"MAIL_API_URL", err.Error()}
	}
	return c, nil
}

// key is that of the environment, or of the file as it is now.
func (a *MailAPI) key() (clients.Secret, error) {
	key, err := secret("MAIL_API_KEY", a.APIKey, a.APIKeyFile)
	if err == nil && key.Empty() {
		err = &Invalid{"MAIL_API_KEY", "is not set: the key of the email service (or MAIL_API_KEY_FILE)"}
	}
	return key, err
}

// renew gives c the key of the file as it is now; nil if there is no file.
func (a *MailAPI) renew(c *mail.Client) func() (bool, error) {
	if a.APIKeyFile == "" {
		return nil
	}
	return func() (bool, error) {
		key, err := a.key()
		if err != nil {
			return false, err
		}
		return c.Renew(key)
	}
}

// Run works until ctx ends and everything in hand is settled.
func (p *MailConsumer) Run(ctx context.Context) error {
	if err := p.Common.validate(); err != nil {
		return err
	}
	if err := p.Requests.validate(); err != nil {
		return err
	}
	if p.BatchSize < 1 || p.BatchSize > mail.MaxRecipients {
		return &Invalid{"MAIL_BATCH_SIZE", "must be 1 to 1000: the service takes no more recipients a request"}
	}
	if p.BatchParallel < 1 || p.BatchParallel > 100 {
		return &Invalid{"MAIL_BATCH_PARALLEL", "must be 1 to 100"}
	}
	hold := &consumer.Hold{Interval: p.RetryMax}
	saw := &observer{hold: hold, renewal: renewal{every: p.RetryMax}}
	api, err := p.client(p.options(p.Concurrency*p.BatchParallel, saw)...)
	if err != nil {
		return err
	}

	r, err := p.start(ctx, "mail-consumer")
	if err != nil {
		return err
	}
	defer r.close()
	queues, err := r.needs(ctx, []bus.Queue{bus.SendQueue, bus.AccountQueue}, bus.MailDeliveries, bus.MailEvents, bus.DeadLetters)
	if err != nil {
		return err
	}
	hold.Log, saw.metrics = r.log, r.metrics
	saw.renewal.log, saw.renewal.again = r.log, p.renew(api)
	slots := make(consumer.Slots, p.Concurrency)
	r.watch(hold)
	log := bus.Log{Publisher: r.publisher, Source: "/errand/mail-consumer"}
	policy := p.policy(func() bool { return hold.Active() || ctx.Err() != nil })

	messagesOut := &consumer.Consumer[messages.SendRequest]{
		Operation: messages.Send, Conn: r.nc, Source: queues[bus.SendQueue.Name], Decode: messages.DecodeSend, Writes: true,
		Handle: (&send.Handler{Upstream: api, Policy: policy, Timeout: p.UpstreamTimeout, Size: p.BatchSize, Parallel: p.BatchParallel,
			Open: bus.Objects{JetStream: r.js}.Open, Sent: log.Sent, Concluded: log.Concluded}).Handle,
		Log: log, Dead: r.publisher, Hold: hold, Slots: slots, GiveUpAfter: p.GiveUpAfter, Logger: r.log, Settled: r.metrics.request,
	}
	accounts := &consumer.Consumer[messages.AccountRequest]{
		Operation: messages.Account, Conn: r.nc, Source: queues[bus.AccountQueue.Name], Decode: messages.DecodeAccount,
		Handle: (&query.Account{Upstream: api, Policy: policy}).Handle,
		Log:    log, Dead: r.publisher, Hold: hold, Slots: slots, GiveUpAfter: p.GiveUpAfter, Logger: r.log, Settled: r.metrics.request,
	}
	r.metrics.ofRequests(hold, hands{p.Concurrency, []func() int{messagesOut.InHand, accounts.InHand}, &saw.underWay}, messages.Send, messages.Account)
	r.ready.add(messagesOut.Fault)
	r.ready.add(accounts.Fault)
	return r.work(ctx, p.ShutdownGrace, messagesOut.Run, accounts.Run)
}
