package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"errand/internal/bus"
	"errand/internal/programs"
	"errand/internal/sandbox"
	"errand/internal/sandbox/devkit"
	"errand/internal/sandbox/devkit/devtest"
	"errand/pkg/messages"
)

// bubble is a whole installation in virtual time: a JetStream server, the sandbox behind a pipe, and the programs.
type bubble struct {
	world
	*upstream
	nats      *devkit.NATS
	pipe      *pipe
	logs      *lines
	kept      *output        // everything that is logged; nil keeps the last lines only
	idle      time.Duration  // how long a pull of an empty queue lasts, and the pauses of programs without work; 0: as they are
	beside    sync.WaitGroup // what runs beside the test, which ends after it
	callbacks http.Handler   // takes what the sandbox sends to any return_url; nil refuses it
}

// inBubble runs f in virtual time.
func inBubble(t *testing.T, f func(*testing.T, *bubble)) {
	t.Helper()
	devtest.InBubble(t, func(t *testing.T, n *devkit.NATS, nc *nats.Conn) {
		js, err := jetstream.New(nc)
		must(t, err)
		b := &bubble{world: world{t: t, js: js, producer: js}, upstream: &upstream{}, nats: n, idle: 20 * time.Second,
			pipe: &pipe{make(chan net.Conn), make(chan struct{})}, logs: &lines{}}
		b.lastOutput = b.logs.String
		b.box = sandbox.New(sandbox.Options{PublicURL: "http://127.0.0.1:8085", Callbacks: receiving{b}})
		b.next = b.box
		web := &http.Server{Handler: b.upstream}
		served := make(chan struct{})
		go func() { _ = web.Serve(b.pipe); close(served) }()
		defer func() { _ = web.Close(); <-served; b.box.Close() }()
		defer b.beside.Wait()
		f(t, b)
	})
}

// runInBubble runs f in virtual time, as a subtest.
func runInBubble(t *testing.T, name string, f func(*testing.T, *bubble)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { inBubble(t, f) })
}

func (b *bubble) connection() bus.Connection {
	return bus.Connection{URL: "nats://127.0.0.1:4222", Dialer: inProcess{b.nats}}
}

// common is the default configuration, over pipes.
func (b *bubble) common() programs.Common {
	var into io.Writer = b.logs
	if b.kept != nil {
		into = io.MultiWriter(b.logs, b.kept)
	}
	log := zerolog.New(into).Level(zerolog.DebugLevel)
	return programs.Common{Base: programs.Base{NATS: b.connection(), AdminAddr: "off", ShutdownGrace: 25 * time.Second, Logger: &log,
		IdleEvery: b.idle},
		UpstreamTimeout: 30 * time.Second, RetryFirst: 200 * time.Millisecond, RetryMax: 10 * time.Second, RetryTries: 5,
		Transport: &http.Transport{DialContext: b.pipe.dial, MaxIdleConnsPerHost: 64, IdleConnTimeout: 4 * time.Second}}
}

// keepLogs keeps everything that the programs log which are made from now on.
func (b *bubble) keepLogs() *output {
	b.kept = &output{}
	return b.kept
}

func (b *bubble) mandates() *programs.MandateConsumer {
	return &programs.MandateConsumer{Common: b.common(), Requests: programs.Requests{Concurrency: 8, GiveUpAfter: 24 * time.Hour},
		MandateAPI: programs.MandateAPI{APIURL: "http://127.0.0.1:8085", APIVersion: "v3", APIToken: "token-for-tests",
			PortalKey: "portal-for-tests", Timezone: "Asia/Kuala_Lumpur"}, ListSettle: time.Minute}
}

func (b *bubble) mails() *programs.MailConsumer {
	return &programs.MailConsumer{Common: b.common(), Requests: programs.Requests{Concurrency: 8, GiveUpAfter: 24 * time.Hour},
		MailAPI: programs.MailAPI{APIURL: "http://127.0.0.1:8085", APIKey: "key-for-tests"}, BatchSize: 1000, BatchParallel: 4}
}

// run runs a program for a while of virtual time, or until until() is true.
func (b *bubble) run(p programs.Program, while time.Duration, until func() bool) {
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

// queueEmpty wants a stream of requests to be empty soon: the server works off the last acknowledgements after a while.
func (b *bubble) queueEmpty(stream string) {
	b.t.Helper()
	for range 20 {
		if b.stored(stream) == 0 {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	b.t.Errorf("%s still holds %d messages", stream, b.stored(stream))
}

// runAt runs the mandate consumer for a while from some time on; until then nobody runs.
func (b *bubble) runAt(from time.Time, while time.Duration) {
	b.t.Helper()
	time.Sleep(time.Until(from))
	b.run(b.mandates(), while, nil)
}

// raw publishes as a client does that checks nothing: the header lines go to the
// server as they are. It returns the sequence in the stream.
func (b *bubble) raw(subject string, header []string, body string) uint64 {
	b.t.Helper()
	conn, err := b.nats.InProcessConn()
	must(b.t, err)
	defer conn.Close()
	in := bufio.NewReader(conn)
	_, err = in.ReadString('\n') // INFO
	must(b.t, err)
	head := "NATS/1.0\r\n"
	for _, line := range header {
		head += line + "\r\n"
	}
	head += "\r\n"
	var said sync.WaitGroup
	said.Go(func() { // the pipe has no buffer: the server may answer while we write
		_,
			_ = fmt.Fprintf(conn,
			"CONNECT {\"headers\":true,\"verbose\":false,\"no_responders\":true}\r\nSUB raw 1\r\nHPUB %s raw %d %d\r\n%s%s\r\n",
			subject, len(head), len(head)+len(body), head, body)
	})
	defer said.Wait()
	for {
		line, err := in.ReadString('\n')
		fatalIf(b.t, err != nil || strings.HasPrefix(line, "-ERR"), "publish: %q %v", line, err)
		if !strings.HasPrefix(line, "MSG raw") {
			continue
		}
		var ack struct {
			Seq   uint64
			Error json.RawMessage
		}
		line, err = in.ReadString('\n')
		fatalIf(b.t, err != nil || json.Unmarshal([]byte(line), &ack) != nil || ack.Seq == 0, "%s %.200q: %q %v", subject, header, line, err)
		return ack.Seq
	}
}

func (b *bubble) poller() *programs.LogPoller {
	return &programs.LogPoller{Common: b.common(), MailAPI: programs.MailAPI{APIURL: "http://127.0.0.1:8085", APIKey: "key-for-tests"},
		Interval: 10 * time.Second, Limit: 100, Overlap: 15 * time.Minute, ReportAfter: 72 * time.Hour}
}

// poll runs a poller for a while of virtual time, or until until() is true.
func (b *bubble) poll(while time.Duration, until func() bool) {
	b.t.Helper()
	b.run(b.poller(), while, until)
}

// otherMail puts a row of mail of others into the sending log, made now.
func (b *bubble) otherMail() {
	b.t.Helper()
	b.insertRow(map[string]any{"to": other})
}

// other is whom mail of others is to.
const other = "other@elsewhere.test"

// watchLog has a poller see a row of the log, before what is called from now on.
func (b *bubble) watchLog() {
	b.t.Helper()
	b.otherMail()
	b.poll(5*time.Minute, b.published("mail.log.watermark", 1))
	b.wantOne("mail.log.watermark")
	time.Sleep(time.Second) // the row is older than the call
}

// pollOn runs a poller while mail of others goes on, which shows how far the log is.
func (b *bubble) pollOn(while time.Duration) {
	b.t.Helper()
	stop := b.running(b.poller())
	defer stop()
	for end := time.Now().Add(while); time.Now().Before(end); time.Sleep(min(10*time.Minute, time.Until(end))) {
		b.otherMail()
	}
}

// send has a message sent, or tried, and waits for its end.
func (b *bubble) send(body map[string]any, state messages.State) {
	b.t.Helper()
	b.publish("mail.send.requested", body)
	b.run(b.mails(), 10*time.Minute, b.published(fmt.Sprint("mail.send.", state, ".", body["request_id"]), 1))
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

// receiving has callbacks taken without a network.
type receiving struct{ b *bubble }

func (r receiving) RoundTrip(request *http.Request) (*http.Response, error) {
	if r.b.callbacks == nil {
		return nil, errors.New("nobody takes callbacks")
	}
	w := httptest.NewRecorder()
	r.b.callbacks.ServeHTTP(w, request)
	return w.Result(), nil
}

// running runs programs until stop is called.
func (b *bubble) running(programs ...programs.Program) (stop func()) {
	ctx, end := context.WithCancel(b.t.Context())
	var all sync.WaitGroup
	for _, p := range programs {
		all.Go(func() {
			err := p.Run(ctx)
			errorIf(b.t, err != nil, "the program did not end well: %v\n%s", err, b.logs)
		})
	}
	return func() { end(); all.Wait() }
}
