package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/pkg/messages"
)

// loop is the contestant: what a person would write in an afternoon with the two
// documents, nats.go and net/http. It checks nothing, logs nothing, keeps no history, and
// calls again after a crash. Prefetch and connection pool are configured well, since that
// person may know about them.
type loop struct {
	NATS        string `help:"Address of the server."`
	Upstream    string `help:"Address of the upstream."`
	Concurrency int    `help:"Requests in flight at once."`

	js     jetstream.JetStream
	client *http.Client
}

func (l *loop) Run(ctx context.Context) error {
	nc, err := nats.Connect(l.NATS)
	if err != nil {
		return err
	}
	defer nc.Close()
	if l.js, err = jetstream.New(nc); err != nil {
		return err
	}
	source, err := l.js.Consumer(ctx, bus.EnrollQueue.Stream, bus.EnrollQueue.Name)
	if err != nil {
		return err
	}
	messages, err := source.Messages(jetstream.PullMaxMessages(2 * l.Concurrency))
	if err != nil {
		return err
	}
	l.client = &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: l.Concurrency}}
	var workers sync.WaitGroup
	failed := make(chan error, l.Concurrency)
	for range l.Concurrency {
		workers.Go(func() {
			if err := l.work(ctx, messages); ctx.Err() == nil {
				failed <- err
			}
		})
	}
	select {
	case err = <-failed:
	case <-ctx.Done():
	}
	messages.Stop()
	workers.Wait()
	return errors.Join(err, nc.FlushTimeout(2*time.Second)) // the last acknowledgements
}

// work handles one request after the other until messages end.
func (l *loop) work(ctx context.Context, messages jetstream.MessagesContext) error {
	for {
		m, err := messages.Next()
		if err != nil {
			return err
		}
		if err := l.handle(ctx, m); err != nil {
			return err
		}
	}
}

type enrollment struct {
	PortalKey            string  `json:"portal_key,omitempty"`
	OrderNumber          string  `json:"order_number"`
	Amount               float64 `json:"amount"`
	PayerIDType          int     `json:"payer_id_type"`
	PayerID              string  `json:"payer_id"`
	PayerName            string  `json:"payer_name"`
	PayerEmail           string  `json:"payer_email"`
	PayerTelephoneNumber string  `json:"payer_telephone_number"`
	FrequencyMode        string  `json:"frequency_mode"`
	ApplicationReason    string  `json:"application_reason"`
}

type outcome struct {
	RequestID   string          `json:"request_id"`
	At          time.Time       `json:"at"`
	OrderNumber string          `json:"order_number"`
	Enrollment  json.RawMessage `json:"enrollment"`
}

// handle makes one call and publishes its outcome.
func (l *loop) handle(ctx context.Context, m jetstream.Msg) error {
	var e enrollment
	if err := json.Unmarshal(m.Data(), &e); err != nil {
		return err
	}
	body, err := json.Marshal(e)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, l.Upstream+"/v3/mandates", bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Accept", "application/json")
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer token")
	response, err := l.client.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode/100 != 2 {
		return fmt.Errorf("upstream: %s", response.Status)
	}
	id := m.Headers().Get(nats.MsgIdHdr)
	event, err := json.Marshal(outcome{RequestID: id, At: time.Now(), OrderNumber: e.OrderNumber, Enrollment: answer})
	if err != nil {
		return err
	}
	if _, err := l.js.Publish(ctx, messages.Enroll.Subject(messages.Succeeded, id), event); err != nil {
		return err
	}
	return m.Ack()
}
