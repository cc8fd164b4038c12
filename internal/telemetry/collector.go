package telemetry

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/rs/zerolog"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"golang.org/x/time/rate"
	"google.golang.org/protobuf/proto"

	"errand/internal/retry"
	"errand/pkg/clients"
)

// collector sends spans by OTLP over HTTP. The library's exporter would do the same, but links gRPC: half a program more.
type collector struct {
	url       string
	header    http.Header
	transport http.RoundTripper
	log       zerolog.Logger
	ending    chan struct{} // closed when the program ends: no more retries

	lost atomic.Int64 // spans, since it was logged last
	said rate.Sometimes
}

// collector returns the one that a configuration names, or the variable that is wrong and its problem.
func (c Config) collector(log zerolog.Logger) (to *collector, variable, problem string) {
	var err error
	to = &collector{url: c.url(), log: log, ending: make(chan struct{}), said: rate.Sometimes{Interval: retry.SpansLost}}
	if to.header, err = c.header(); err != nil {
		return nil, "OTEL_EXPORTER_OTLP_HEADERS", "must be a list of name=value, with commas between"
	}
	if to.transport, err = c.transport(); err != nil {
		return nil, "OTEL_EXPORTER_OTLP_CERTIFICATE", err.Error()
	}
	return to, "", ""
}

// header are the collector's headers; their values are percent-encoded.
func (c Config) header() (http.Header, error) {
	h := http.Header{"Content-Type": {"application/x-protobuf"}, "User-Agent": {"errand"}}
	for pair := range strings.FieldsFuncSeq(c.Headers, func(r rune) bool { return r == ',' }) {
		name, value, found := strings.Cut(pair, "=")
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if name = strings.TrimSpace(name); !found || name == "" || err != nil {
			return nil, errors.New("not a list of headers")
		}
		h.Set(name, value)
	}
	return h, nil
}

func (c Config) transport() (http.RoundTripper, error) {
	if c.Certificate == "" {
		return clients.NewTransport(1, nil), nil
	}
	text, err := os.ReadFile(c.Certificate)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: x509.NewCertPool()}
	if !config.RootCAs.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s holds no certificate", c.Certificate)
	}
	return clients.NewTransport(1, config), nil
}

// Start does nothing: there is no connection until there are spans.
func (*collector) Start(context.Context) error { return nil }

// Stop does nothing.
func (*collector) Stop(context.Context) error { return nil }

// UploadTraces sends spans, or drops them: that is logged once an hour at most, and never an error.
func (c *collector) UploadTraces(ctx context.Context, spans []*otlp.ResourceSpans) error {
	ctx, cancel := context.WithTimeout(ctx, retry.SpansTaken)
	defer cancel()
	body, err := proto.Marshal(&otlp.TracesData{ResourceSpans: spans}) // an export request has the same form
	again := err == nil
	for n := 1; again; n++ {
		again, err = c.post(ctx, body)
		again = again && retry.PauseUntil(ctx, c.ending, retry.Spans.Wait(n)) && !retry.Stopped(c.ending)
	}
	if err != nil {
		for _, r := range spans {
			for _, s := range r.GetScopeSpans() {
				c.lost.Add(int64(len(s.GetSpans())))
			}
		}
		c.said.Do(func() {
			c.log.Warn().Err(err).Int64("spans", c.lost.Swap(0)).Msg("spans of traces are lost; requests are not affected")
		})
	}
	return nil
}

// busy are the statuses after which a batch is sent again.
var busy = []int{http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout}

// post sends a batch once, and reports whether to send it again.
func (c *collector) post(ctx context.Context, body []byte) (again bool, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return false, err
	}
	r.Header = c.header
	response, err := c.transport.RoundTrip(r)
	if err != nil {
		return true, err
	}
	defer func() { _ = response.Body.Close() }()
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, 64<<10)) // so that the connection can be used again
	if response.StatusCode/100 == 2 {
		return false, nil
	}
	return slices.Contains(busy, response.StatusCode), fmt.Errorf("the collector answers %d", response.StatusCode)
}
