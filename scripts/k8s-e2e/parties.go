//go:build linux

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/retry"
	"errand/pkg/messages"
)

// control calls the sandbox's control API and returns its answer.
func (w *world) control(ctx context.Context, method, path, body string) []byte {
	const sandbox = "http://sandbox.errand.svc.cluster.local:8085/_sandbox" // this process is in the cluster
	request := get(http.NewRequestWithContext(ctx, method, sandbox+path, strings.NewReader(body)))
	request.Host = "sandbox:8085" // the only name that it answers to
	response, err := (&http.Client{Timeout: 30 * time.Second}).Do(request)
	must(err)
	defer response.Body.Close()
	text := get(io.ReadAll(response.Body))
	if response.StatusCode != http.StatusOK {
		must(fmt.Errorf("sandbox: %s %s: %s: %s", method, path, response.Status, bytes.TrimSpace(text)))
	}
	return text
}

// connect makes a connection for each NATS user, with its own permissions.
func (w *world) connect(passwords map[string]string) {
	for user, js := range map[string]*jetstream.JetStream{"producer": &w.producer, "provisioner": &w.provisioner} {
		nc := get(nats.Connect("tls://nats.nats.svc.cluster.local:4222", nats.RootCAs(w.pki("ca.crt")),
			nats.UserInfo(user, passwords[user]), nats.CustomInboxPrefix("_INBOX_"+user), nats.MaxReconnects(-1)))
		*js = get(jetstream.New(nc))
	}
}

// repeated counts the deliveries of requests so far beyond the first of each.
func (w *world) repeated(ctx context.Context) (n uint64) {
	for name, stream := range map[string]string{"mandate-enroll": "MANDATE_REQUESTS", "mail-send": "MAIL_REQUESTS"} {
		c := get(w.provisioner.Consumer(ctx, stream, name))
		delivered := c.CachedInfo().Delivered // only this consumer's requests are published to the stream, so each message is one
		n += delivered.Consumer - delivered.Stream
	}
	return n
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

// underLoad runs act while requests are published and every upstream call takes a second. It returns what was published.
func (w *world) underLoad(ctx context.Context, name string, act func()) *batch {
	w.control(ctx, http.MethodPut, "/settings", `{"latency":"1s"}`)
	b, loaded := &batch{name: name}, make(chan error, 1)
	on, stop := context.WithCancel(ctx)
	defer stop()
	go func() { loaded <- w.load(on, b) }() // ends with stop, below
	retry.Pause(ctx, 3*time.Second)
	act()
	retry.Pause(ctx, time.Second)
	stop()
	must(<-loaded)
	w.logf("%d enrollments and %d mails were published meanwhile", b.enrolls, b.mails)
	w.control(ctx, http.MethodPut, "/settings", `{"latency":"0s"}`)
	return b
}

// succeed waits until every request of a batch has succeeded, and checks that nothing was done twice.
func (w *world) succeed(ctx context.Context, b *batch, timeout time.Duration) {
	must(until(ctx, timeout, func(ctx context.Context) error {
		outcomes, requests := map[messages.State]int{}, map[string]int{}
		for op, stream := range map[messages.Operation]string{messages.Enroll: "MANDATE_EVENTS", messages.Send: "MAIL_EVENTS"} {
			s, err := w.provisioner.Stream(ctx, stream)
			if err != nil {
				return err
			}
			info, err := s.Info(ctx, jetstream.WithSubjectFilter(op.Filter("*")))
			if err != nil {
				return err
			}
			for subject, n := range info.State.Subjects {
				id := subject[strings.LastIndexByte(subject, '.')+1:]
				if state := messages.StateOf(subject); state.Final(op) && state != messages.Resolved && strings.HasPrefix(id, b.name+"-") {
					outcomes[state] += int(n)
					requests[id] += int(n)
				}
			}
		}
		for id, n := range requests {
			if n != 1 {
				return permanent{fmt.Errorf("%s has %d outcomes", id, n)}
			}
		}
		if outcomes[messages.Succeeded] != b.enrolls || outcomes[messages.Accepted] != b.mails {
			return fmt.Errorf("not all of %d enrollments and %d mails succeeded: %v", b.enrolls, b.mails, outcomes)
		}
		return nil
	}))
	var did struct {
		Enroll, Mail struct {
			Twice int `json:"twice_count"`
		}
	}
	must(json.Unmarshal(w.control(ctx, http.MethodGet, "/oracle?summary=1", ""), &did))
	if did.Enroll.Twice+did.Mail.Twice > 0 {
		must(fmt.Errorf("done twice: %+v", did))
	}
}
