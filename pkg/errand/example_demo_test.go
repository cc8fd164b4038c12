package errand_test

import (
	"context"
	"log"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/sandbox/devkit"
	"errand/internal/sandbox/devkit/devtest"
	"errand/pkg/errand"
	"errand/pkg/messages"
)

// example is the server of the examples, and the end of what they may take.
var example struct {
	ctx context.Context
	n   *devkit.NATS
}

func TestMain(m *testing.M) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	example.ctx = ctx
	defer func() {
		cancel()
		if example.n != nil {
			example.n.Close()
		}
	}()
	m.Run()
}

// demo is a server with a mail consumer that accepts everything.
func demo() (context.Context, string) {
	if example.n != nil {
		return example.ctx, example.n.URL
	}
	n, err := devkit.Start("")
	if err != nil {
		log.Fatal(err)
	}
	example.n = n
	nc, err := n.Connect()
	if err == nil {
		err = devtest.Provision(example.ctx, nc)
	}
	if err != nil {
		log.Fatal(err)
	}
	go accept(nc)
	return example.ctx, n.URL
}

// connected is a client of that server.
func connected() (context.Context, *errand.Client) {
	ctx, url := demo()
	nc, err := nats.Connect(url)
	if err != nil {
		log.Fatal(err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		log.Fatal(err)
	}
	return ctx, errand.New(js)
}

// accept does what the mail consumer does when all goes well.
func accept(nc *nats.Conn) {
	js, err := jetstream.New(nc)
	if err != nil {
		log.Fatal(err)
	}
	queue, err := js.Consumer(example.ctx, "MAIL_REQUESTS", "mail-send")
	if err != nil {
		log.Fatal(err)
	}
	for example.ctx.Err() == nil {
		m, err := queue.Next(jetstream.FetchMaxWait(time.Second))
		if err != nil {
			continue
		}
		r, meta, _ := messages.Decode[messages.SendRequest](m.Data())
		common := messages.Common{RequestID: r.RequestID, Attempt: 1}
		for _, e := range []messages.Event{
			{Operation: messages.Send, State: messages.Started, ID: r.RequestID,
				Body: &messages.SendStarted{Common: common, Fingerprint: meta.Fingerprint}},
			{Operation: messages.Send, State: messages.Accepted, ID: r.RequestID,
				Body: &messages.SendOutcome{Common: common, Fingerprint: meta.Fingerprint, Recipients: 1, Accepted: 1}},
		} {
			body, err := e.Encode()
			if err == nil {
				_, err = js.Publish(example.ctx, e.Subject(), body)
			}
			if err != nil {
				log.Print(err)
			}
		}
		if err := m.Ack(); err != nil {
			log.Print(err)
		}
	}
}
