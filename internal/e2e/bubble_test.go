// Package e2e tells stories on the real broker: time travel in a bubble of virtual
// time, and crashes of the real programs as processes.
package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"errand/internal/app"
	"errand/internal/bus"
	"errand/internal/devkit"
	"errand/internal/devkit/devtest"
	"errand/internal/sandbox"
)

// bubble is a whole installation in virtual time: a JetStream server, the sandbox
// behind a pipe, and the programs.
type bubble struct {
	t    *testing.T
	n    *devkit.NATS
	js   jetstream.JetStream
	box  *sandbox.Sandbox
	pipe *pipe
	logs *lines
	down func(*http.Request) int // a status that the upstream answers instead, or 0
}

// inBubble runs f in virtual time.
func inBubble(t *testing.T, f func(*testing.T, *bubble)) {
	t.Helper()
	devtest.InBubble(t, func(t *testing.T, n *devkit.NATS, nc *nats.Conn) {
		js, err := jetstream.New(nc)
		if err != nil {
			t.Fatal(err)
		}
		b := &bubble{t: t, n: n, js: js, pipe: &pipe{make(chan net.Conn), make(chan struct{})}, logs: &lines{},
			box: sandbox.New(sandbox.Options{PublicURL: "http://127.0.0.1:8085"})}
		web := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if b.down != nil {
				if status := b.down(r); status != 0 {
					http.Error(w, `{"message":"out of order"}`, status)
					return
				}
			}
			b.box.ServeHTTP(w, r)
		})}
		served := make(chan struct{})
		go func() { _ = web.Serve(b.pipe); close(served) }()
		defer func() { _ = web.Close(); <-served; b.box.Close() }()
		f(t, b)
	})
}

func (b *bubble) connection() bus.Connection {
	return bus.Connection{URL: "nats://127.0.0.1:4222", Dialer: inProcess{b.n}}
}

// common is the default configuration, over pipes.
func (b *bubble) common() app.Common {
	log := zerolog.New(b.logs).Level(zerolog.DebugLevel)
	return app.Common{NATS: b.connection(), AdminAddr: "off", ShutdownGrace: 25 * time.Second, Logger: &log,
		UpstreamTimeout: 30 * time.Second, RetryFirst: 200 * time.Millisecond, RetryMax: 10 * time.Second, RetryTries: 5,
		Transport: &http.Transport{DialContext: b.pipe.dial, MaxIdleConnsPerHost: 64, IdleConnTimeout: 4 * time.Second}}
}

func (b *bubble) mandates() *app.MandateConsumer {
	return &app.MandateConsumer{Common: b.common(), Requests: app.Requests{Concurrency: 8, GiveUpAfter: 24 * time.Hour},
		MandateAPI: app.MandateAPI{APIURL: "http://127.0.0.1:8085", APIVersion: "v3", APIToken: "token-for-tests", PortalKey: "portal", Timezone: "Asia/Kuala_Lumpur"}}
}

func (b *bubble) mails() *app.MailConsumer {
	return &app.MailConsumer{Common: b.common(), Requests: app.Requests{Concurrency: 8, GiveUpAfter: 24 * time.Hour},
		MailAPI: app.MailAPI{APIURL: "http://127.0.0.1:8085", APIKey: "key-for-tests"}, BatchSize: 1000, BatchParallel: 4}
}

// run runs a program for a while of virtual time, or until the story is told.
func (b *bubble) run(p app.Program, while time.Duration, until func() bool) {
	b.t.Helper()
	ctx, stop := context.WithCancel(b.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	for end := time.Now().Add(while); time.Now().Before(end) && (until == nil || !until()); {
		select {
		case err := <-ended:
			b.t.Fatalf("the program ended: %v\n%s", err, b.logs)
		case <-time.After(min(time.Until(end), while/200+time.Second)):
		}
	}
	stop()
	if err := <-ended; err != nil && !errors.Is(err, context.Canceled) { // canceled: it had not even begun
		b.t.Fatalf("the program did not end well: %v\n%s", err, b.logs)
	}
}

// publish puts a request on its subject.
func (b *bubble) publish(subject string, body any) {
	b.t.Helper()
	data, ok := body.([]byte)
	if !ok {
		data, _ = json.Marshal(body)
	}
	if _, err := b.js.Publish(b.t.Context(), subject, data); err != nil {
		b.t.Fatal(err)
	}
}

// told lists the bodies of the events on a subject or filter, oldest first.
func (b *bubble) told(filter string) []event {
	b.t.Helper()
	return told(b.t, b.js, filter)
}

// wantOne fails unless exactly one event stands under filter, and gives it.
func (b *bubble) wantOne(filter string) event {
	b.t.Helper()
	got := b.told(filter)
	if len(got) != 1 {
		b.t.Fatalf("%s: got %d events, want 1\n%s", filter, len(got), b.logs)
	}
	return got[0]
}

// event is one stored event, read back.
type event struct {
	Subject  string
	Sequence uint64 // in its stream
	Header   nats.Header
	Body     map[string]any
	Raw      string
}

func (e event) reason() string { s, _ := e.Body["reason"].(string); return s }

func told(t *testing.T, js jetstream.JetStream, filter string) (out []event) {
	t.Helper()
	stream := map[string]string{"mandate": bus.MandateEvents, "mail": bus.MailEvents, "dead": bus.DeadLetters}[strings.Split(filter, ".")[0]]
	if strings.HasPrefix(filter, "mail.delivery") || strings.HasPrefix(filter, "mail.log") {
		stream = bus.MailDeliveries
	}
	c, err := js.OrderedConsumer(t.Context(), stream, jetstream.OrderedConsumerConfig{FilterSubjects: []string{filter}})
	if err != nil {
		t.Fatal(err)
	}
	info, err := c.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for left, tries := info.NumPending, 0; left > 0; {
		batch, err := c.Fetch(int(min(left, 500)), jetstream.FetchMaxWait(5*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for m := range batch.Messages() {
			e := event{Subject: m.Subject(), Header: m.Headers(), Raw: string(m.Data())}
			if meta, err := m.Metadata(); err == nil {
				e.Sequence = meta.Sequence.Stream
			}
			_ = json.Unmarshal(m.Data(), &e.Body) // dead letters need not be JSON
			out = append(out, e)
			n++
		}
		// In a cluster the consumer's server may not have heard yet of who asks.
		if n == 0 && errors.Is(batch.Error(), nats.ErrNoResponders) && tries < 50 {
			tries++
			<-time.After(100 * time.Millisecond)
			continue
		}
		if n == 0 {
			t.Fatalf("%s: %d events do not come: %v", filter, left, batch.Error())
		}
		left -= uint64(n)
	}
	return out
}

// enrollment is a valid request.
func enrollment(id string, more ...string) map[string]any {
	body := map[string]any{"request_id": id, "order_number": "order-" + id, "amount": 100, "payer_id_type": 1, "payer_id": "900101011234",
		"payer_name": "Test Payer", "payer_email": "payer@example.test", "payer_telephone_number": "0123456789",
		"frequency_mode": "MT", "application_reason": "story"}
	for i := 0; i+1 < len(more); i += 2 {
		body[more[i]] = more[i+1]
	}
	return body
}

// message is a valid request to n people.
func message(id string, n int, more ...string) map[string]any {
	to := make([]string, n)
	for i := range to {
		to[i] = fmt.Sprintf("%s-%d@example.test", id, i)
	}
	body := map[string]any{"request_id": id, "to": to, "subject": "story " + id, "content": "hello"}
	for i := 0; i+1 < len(more); i += 2 {
		body[more[i]] = more[i+1]
	}
	return body
}

// inProcess dials the server without a network.
type inProcess struct{ n *devkit.NATS }

func (d inProcess) Dial(string, string) (net.Conn, error) { return d.n.InProcessConn() }

// pipe is a listener without a network.
type pipe struct {
	conns chan net.Conn
	done  chan struct{}
}

func (p *pipe) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipe) Close() error {
	select {
	case <-p.done:
		return errors.New("closed before")
	default:
		close(p.done)
		return nil
	}
}

func (p *pipe) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

func (p *pipe) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, srv := net.Pipe()
	select {
	case p.conns <- srv:
		return client, nil
	case <-p.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
