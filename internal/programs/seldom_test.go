package programs

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"errand/internal/bus"
	"errand/internal/sandbox/devkit"
	"errand/internal/sandbox/devkit/devtest"
)

type dialer struct{ *devkit.NATS }

func (d dialer) Dial(string, string) (net.Conn, error) { return d.InProcessConn() }

type answers func(*http.Request) (*http.Response, error)

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) { return a(r) }

// A poller that sweeps every five minutes also tries to store only that often. Between two tries its fault must still show.
func TestAFaultOfAStreamLastsWhileAPollerTriesSeldom(t *testing.T) {
	devtest.InBubble(t, func(t *testing.T, n *devkit.NATS, nc *nats.Conn) {
		js, err := jetstream.New(nc)
		check(t, err)
		stream, err := js.Stream(t.Context(), bus.MailDeliveries)
		check(t, err)
		full := stream.CachedInfo().Config
		full.MaxBytes = 1
		_, err = js.UpdateStream(t.Context(), full)
		check(t, err)
		log := zerolog.Nop()
		empty := answers(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, Header: http.Header{},
				Body: io.NopCloser(strings.NewReader(`{"error":false,"data":{"data":[],"total_record":0}}`))}, nil
		})
		p := &LogPoller{Common: Common{Base: Base{NATS: bus.Connection{URL: "nats://127.0.0.1:4222", Dialer: dialer{n}}, AdminAddr: "off",
			ShutdownGrace: time.Second, Logger: &log}, UpstreamTimeout: time.Second, RetryFirst: time.Second, RetryMax: 10 * time.Second,
			RetryTries: 5, Transport: empty},
			MailAPI: MailAPI{APIURL: "http://127.0.0.1:8085", APIKey: "key"}, Interval: 5 * time.Minute, Limit: 100, ReportAfter: time.Hour}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- p.Run(ctx) }()
		defer func() { stop(); check(t, <-ended) }()
		time.Sleep(time.Minute)
		for at := time.Duration(0); at < 20*time.Minute; at += time.Minute {
			programs, err := bus.AskStatus(t.Context(), nc)
			check(t, err)
			if len(programs) != 1 || programs[0].NotStored[bus.MailDeliveries] == "" {
				t.Errorf("after %v: %+v", at, programs)
			}
			time.Sleep(time.Minute)
		}
	})
}
