package main

import (
	"context"
	"fmt"
	"time"

	wm "github.com/ThreeDotsLabs/watermill"
	wmpull "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/jetstream"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// watermill runs the loop's handler by Watermill's router with its retry middleware. Outcomes have a subject each, so
// the handler publishes them itself, as its documentation advises for such topics. Acknowledgements are not waited for.
//
// Its subscribers handle one message after the other: there is one for each request in flight, all on the queue's own
// durable consumer. A queue group of push subscribers is slower.
type watermill struct {
	peer     `embed:""`
	Prefetch int `default:"4" help:"Messages that each subscriber may have at once."`
}

func (w *watermill) Run(ctx context.Context) error {
	nc, err := nats.Connect(w.NATS)
	if err != nil {
		return err
	}
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: 10 * time.Second}, wm.NopLogger{})
	if err != nil {
		return err
	}
	retry := middleware.Retry{MaxRetries: 5, InitialInterval: 200 * time.Millisecond, MaxInterval: 10 * time.Second, Multiplier: 2}
	router.AddMiddleware(retry.Middleware)
	if err := w.subscribe(nc, router); err != nil {
		return err
	}
	return router.Run(ctx)
}

// work is the router's handler: it does a request and publishes the outcome.
func (w *watermill) work(p message.Publisher) message.NoPublishHandlerFunc {
	handle := w.handler()
	return func(m *message.Message) error {
		subject, event, err := handle(m.Context(), m.UUID, m.Payload)
		if err != nil {
			return err
		}
		return p.Publish(subject, message.NewMessage(m.UUID, event))
	}
}

func (w *watermill) subscribe(nc *nats.Conn, router *message.Router) error {
	type cleaner = func(context.Context, wm.LoggerAdapter)
	existing := func(ctx context.Context, js jetstream.JetStream, _ string) (jetstream.Consumer, cleaner, error) {
		source, err := js.Consumer(ctx, w.queue().Stream, w.queue().Name)
		return source, nil, err
	}
	from, err := wmpull.NewSubscriber(wmpull.SubscriberConfig{Conn: nc, Logger: wm.NopLogger{}, ResourceInitializer: existing,
		ConsumeOptions: []jetstream.PullConsumeOpt{jetstream.PullMaxMessages(w.Prefetch)}, AckAsync: true, Unmarshaler: pulled{}})
	if err != nil {
		return err
	}
	to, err := wmpull.NewPublisher(wmpull.PublisherConfig{Conn: nc, Logger: wm.NopLogger{}})
	if err != nil {
		return err
	}
	work := w.work(to)
	for i := range w.Concurrency {
		router.AddConsumerHandler(fmt.Sprint("worker-", i), w.queue().Filter, from, work)
	}
	return nil
}

// pulled takes the id of a request from where its publisher put it.
type pulled struct{}

func (pulled) Unmarshal(m jetstream.Msg) (*message.Message, error) {
	return message.NewMessage(m.Headers().Get(nats.MsgIdHdr), m.Data()), nil
}
