package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/pkg/messages"
)

// peer is what the contestants that take requests are given.
type peer struct {
	NATS        string `required:"" help:"Address of the server."`
	Upstream    string `required:"" help:"Address of the upstream."`
	Concurrency int    `default:"64" help:"Requests in flight at once."`
	Operation   string `enum:"enroll,send" default:"enroll" help:"Which requests: ${enum}."`
}

// queue is the durable consumer that the requests come from.
func (p peer) queue() bus.Queue {
	if p.Operation == "send" {
		return bus.SendQueue
	}
	return bus.EnrollQueue
}

// work has a worker for each request in flight, and prefetches one more for each, until one fails or ctx ends. A request is
// acknowledged when its worker has done it.
func (p peer) work(ctx context.Context, do func(js jetstream.JetStream, id string, request []byte) error) error {
	nc, err := nats.Connect(p.NATS)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	source, err := js.Consumer(ctx, p.queue().Stream, p.queue().Name)
	if err != nil {
		return err
	}
	requests, err := source.Messages(jetstream.PullMaxMessages(2 * p.Concurrency))
	if err != nil {
		return err
	}
	var workers sync.WaitGroup
	failed := make(chan error, p.Concurrency)
	for range p.Concurrency {
		workers.Go(func() {
			for {
				m, err := requests.Next()
				if err == nil {
					err = do(js, m.Headers().Get(nats.MsgIdHdr), m.Data())
				}
				if err == nil {
					err = m.Ack()
				}
				if ctx.Err() == nil && err != nil {
					failed <- err
				}
				if err != nil {
					return
				}
			}
		})
	}
	select {
	case err = <-failed:
	case <-ctx.Done():
	}
	requests.Stop()
	workers.Wait()
	return errors.Join(err, nc.FlushTimeout(2*time.Second)) // the last acknowledgements
}

// handler does a request and returns the subject and the body of its outcome.
type handler func(ctx context.Context, id string, request []byte) (subject string, event []byte, err error)

// handler returns what the loop and Watermill have in common: decode, call, encode, with the standard library.
func (p peer) handler() handler {
	client := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: p.Concurrency}}
	if p.Operation == "send" {
		return func(ctx context.Context, id string, request []byte) (string, []byte, error) {
			return send(ctx, client, p.Upstream+"/api/v0/messages", id, request)
		}
	}
	return func(ctx context.Context, id string, request []byte) (string, []byte, error) {
		return enroll(ctx, client, p.Upstream+"/v3/mandates", id, request)
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

type enrolled struct {
	RequestID   string          `json:"request_id"`
	At          time.Time       `json:"at"`
	OrderNumber string          `json:"order_number"`
	Enrollment  json.RawMessage `json:"enrollment"`
}

func enroll(ctx context.Context, client *http.Client, url, id string, request []byte) (string, []byte, error) {
	var e enrollment
	if err := json.Unmarshal(request, &e); err != nil {
		return "", nil, err
	}
	answer, err := post(ctx, client, url, e)
	if err != nil {
		return "", nil, err
	}
	event, err := json.Marshal(enrolled{RequestID: id, At: time.Now(), OrderNumber: e.OrderNumber, Enrollment: answer})
	return messages.Enroll.Subject(messages.Succeeded, id), event, err
}

type mailing struct {
	From    string   `json:"from"`
	To      []string `json:"to"`
	Subject string   `json:"subject"`
	Content string   `json:"content"`
}

type accepted struct {
	RequestID string    `json:"request_id"`
	At        time.Time `json:"at"`
	Accepted  int       `json:"accepted"`
}

// send makes one call after the other, each with as many recipients as the service takes.
func send(ctx context.Context, client *http.Client, url, id string, request []byte) (string, []byte, error) {
	var m mailing
	if err := json.Unmarshal(request, &m); err != nil {
		return "", nil, err
	}
	recipients := len(m.To)
	for batch := range slices.Chunk(m.To, messages.MaxBatch) {
		m.To = batch
		answer, err := post(ctx, client, url, m)
		if err != nil {
			return "", nil, err
		}
		var sent struct {
			Error bool `json:"error"`
		}
		if err := json.Unmarshal(answer, &sent); err != nil {
			return "", nil, err
		}
		if sent.Error {
			return "", nil, errors.New("the upstream refused a message")
		}
	}
	event, err := json.Marshal(accepted{RequestID: id, At: time.Now(), Accepted: recipients})
	return messages.Send.Subject(messages.Accepted, id), event, err
}

// post makes one call.
func post(ctx context.Context, client *http.Client, url string, body any) ([]byte, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "application/json")
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer token")
	response, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	if response.StatusCode/100 != 2 {
		return nil, fmt.Errorf("upstream: %s", response.Status)
	}
	return answer, nil
}
