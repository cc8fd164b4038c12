package main

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/pkg/clients"
	"errand/pkg/clients/mail"
	"errand/pkg/messages"
)

// copier reads page by page and publishes the rows unchanged.
type copier struct {
	NATS     string `help:"Address of the server."`
	Upstream string `help:"Address of the upstream."`
	Rows     int    `help:"Rows of the log."`
	Limit    int    `help:"Rows per page."`
}

func (c *copier) Run(ctx context.Context) error {
	nc, err := nats.Connect(c.NATS)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(1000))
	if err != nil {
		return err
	}
	api, err := mail.New(mail.Config{URL: c.Upstream, Key: clients.NewSecret("key")})
	if err != nil {
		return err
	}
	subject := messages.Delivery.Subject("delivered", messages.Unmatched)
	for page := 1; (page-1)*c.Limit < c.Rows; page++ {
		found, err := api.LogPage(ctx, page, c.Limit)
		if err != nil {
			return err
		}
		for _, row := range found.Entries {
			if _, err := js.PublishAsync(subject, row.Raw, jetstream.WithStallWait(time.Minute)); err != nil {
				return err
			}
		}
	}
	select {
	case <-js.PublishAsyncComplete():
		<-ctx.Done() // it is measured until it is stopped
	case <-ctx.Done():
	}
	return nil
}
