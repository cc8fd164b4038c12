//go:build linux

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/pkg/messages"
)

// control calls the sandbox's control API.
func (w *world) control(ctx context.Context, method, path, body string, into any) error {
	const sandbox = "http://sandbox.errand.svc.cluster.local:8085/_sandbox" // this process is in the cluster
	request, err := http.NewRequestWithContext(ctx, method, sandbox+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	request.Host = "sandbox:8085" // the only name that it answers to
	response, err := (&http.Client{Timeout: 30 * time.Second}).Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("sandbox: %s %s: %s: %s", method, path, response.Status, bytes.TrimSpace(text))
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(text, into)
}

// latency sets how long every upstream call takes.
func (w *world) latency(ctx context.Context, d time.Duration) error {
	return w.control(ctx, http.MethodPut, "/settings", fmt.Sprintf(`{"latency":%q}`, d), nil)
}

// upstreamState is what the upstreams really did.
type upstreamState struct {
	Enroll struct {
		Accepted   int
		TwiceCount int            `json:"twice_count"`
		Twice      map[string]int // order numbers
	}
	Mail struct {
		Accepted, Recipients, Largest int
		TwiceCount                    int `json:"twice_count"`
	}
}

// oracle returns what the upstreams did, and an error if anything was done twice.
func (w *world) oracle(ctx context.Context) (upstreamState, error) {
	var d upstreamState
	err := w.control(ctx, http.MethodGet, "/oracle?summary=1", "", &d)
	if err == nil && d.Enroll.TwiceCount+d.Mail.TwiceCount > 0 {
		err = fmt.Errorf("done twice: %d enrollments (%v), %d mails", d.Enroll.TwiceCount, d.Enroll.Twice, d.Mail.TwiceCount)
	}
	return d, err
}

// connect makes a connection for each NATS user, with its own permissions.
func (w *world) connect(ctx context.Context) error {
	secrets := map[string][2]string{"producer": {"nats-people", "producer"}, "provisioner": {"errand-provision", "nats-password"}}
	return w.connectAs(ctx, "nats://nats.errand.svc.cluster.local:4222", func(user string) string {
		encoded := get(w.k(ctx, "get", "secret", secrets[user][0], "-o", "jsonpath={.data."+secrets[user][1]+"}"))
		return string(get(base64.StdEncoding.DecodeString(encoded)))
	})
}

// connectAs is connect with these passwords.
func (w *world) connectAs(ctx context.Context, url string, password func(user string) string, options ...nats.Option) error {
	for user, js := range map[string]*jetstream.JetStream{"producer": &w.producer, "provisioner": &w.provisioner} {
		nc := get(nats.Connect(url, append(options, nats.UserInfo(user, password(user)), nats.CustomInboxPrefix("_INBOX_"+user),
			nats.MaxReconnects(-1))...))
		*js = get(jetstream.New(nc))
	}
	return nil
}

// events counts the events that match a filter, by subject.
func (w *world) events(ctx context.Context, stream, filter string) (map[string]uint64, error) {
	s, err := w.provisioner.Stream(ctx, stream)
	if err != nil {
		return nil, err
	}
	info, err := s.Info(ctx, jetstream.WithSubjectFilter(filter))
	if err != nil {
		return nil, err
	}
	return info.State.Subjects, nil
}

// repeated counts the deliveries of requests so far beyond the first of each.
func (w *world) repeated(ctx context.Context) (n uint64, err error) {
	for name, stream := range map[string]string{"mandate-enroll": "MANDATE_REQUESTS", "mail-send": "MAIL_REQUESTS"} {
		c, err := w.provisioner.Consumer(ctx, stream, name)
		if err != nil {
			return 0, err
		}
		delivered := c.CachedInfo().Delivered // only this consumer's requests are published to the stream, so each message is one
		n += delivered.Consumer - delivered.Stream
	}
	return n, nil
}

// batch are requests that were published together; their ids begin with its name and a dash.
type batch struct {
	name           string
	enrolls, mails int
}

// enroll publishes one enrollment of the batch.
func (w *world) enroll(ctx context.Context, b *batch) error {
	b.enrolls++
	id := fmt.Sprintf("%s-e%d", b.name, b.enrolls)
	return w.publish(ctx, messages.Enroll.Requested(), id, map[string]any{"request_id": id, "order_number": id, "amount": "100.50",
		"payer_id_type": 1, "payer_id": "900101011234", "payer_name": "Ann Tester", "payer_email": "ann@example.com",
		"payer_telephone_number": "0123456789", "frequency_mode": "MT", "application_reason": "Membership"})
}

// mail publishes one message of the batch. Its recipients get no other message, so that each delivery has one match.
func (w *world) mail(ctx context.Context, b *batch, recipients int) error {
	b.mails++
	id := fmt.Sprintf("%s-m%d", b.name, b.mails)
	to := make([]string, recipients)
	for n := range to {
		to[n] = fmt.Sprintf("r%d.%s@example.com", n, id)
	}
	return w.publish(ctx, messages.Send.Requested(), id, map[string]any{"request_id": id, "to": to, "subject": id,
		"content": "See you at noon."})
}

func (w *world) publish(ctx context.Context, subject, id string, body any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	return until(ctx, time.Minute, func(ctx context.Context) error { // repeated until it is acknowledged, which its id makes harmless
		ctx, stop := context.WithTimeout(ctx, 5*time.Second)
		defer stop()
		_, err := w.producer.Publish(ctx, subject, data, jetstream.WithMsgID(id))
		return err
	})
}

// load publishes ten of both kinds a second until ctx ends.
func (w *world) load(ctx context.Context, b *batch) error {
	tick := time.NewTicker(time.Second / 10)
	defer tick.Stop()
	for {
		// Not cancelled by ctx: a request that is published must be counted.
		unfinished := context.WithoutCancel(ctx)
		if err := cmp.Or(w.enroll(unfinished, b), w.mail(unfinished, b, 2)); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// outcomes waits until every request of a batch has one outcome, and returns the counts.
func (w *world) outcomes(ctx context.Context, b *batch, timeout time.Duration) (map[string]int, error) {
	var outcomes map[string]int
	err := until(ctx, timeout, func(ctx context.Context) error {
		outcomes = map[string]int{}
		requests := map[string]int{}
		for op, stream := range map[messages.Operation]string{messages.Enroll: "MANDATE_EVENTS", messages.Send: "MAIL_EVENTS"} {
			events, err := w.events(ctx, stream, op.Filter("*"))
			if err != nil {
				return err
			}
			for subject, n := range events {
				id := subject[strings.LastIndexByte(subject, '.')+1:]
				if state := messages.StateOf(subject); state.Final(op) && state != messages.Resolved && strings.HasPrefix(id, b.name+"-") {
					outcomes[string(state)] += int(n)
					requests[id] += int(n)
				}
			}
		}
		for id, n := range requests {
			if n != 1 {
				return permanent{fmt.Errorf("%s has %d outcomes", id, n)}
			}
		}
		if len(requests) != b.enrolls+b.mails {
			return fmt.Errorf("%d requests, %d have an outcome: %v", b.enrolls+b.mails, len(requests), outcomes)
		}
		return nil
	})
	return outcomes, err
}

// succeed waits until every request of a batch has succeeded, and checks that nothing was done twice.
func (w *world) succeed(ctx context.Context, b *batch, timeout time.Duration) error {
	outcomes := get(w.outcomes(ctx, b, timeout))
	if outcomes["succeeded"] != b.enrolls || outcomes["accepted"] != b.mails {
		return fmt.Errorf("not all of %d enrollments and %d mails succeeded: %v", b.enrolls, b.mails, outcomes)
	}
	_, err := w.oracle(ctx)
	return err
}
