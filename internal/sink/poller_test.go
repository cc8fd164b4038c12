package sink_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"errand/internal/devkit"
	"errand/internal/devkit/devtest"
	"errand/internal/poll"
	"errand/pkg/clients"
	"errand/pkg/clients/mail"
)

// pages is an upstream without latency: a log of rows, newest first, a second apart.
type pages struct {
	rows, limit int
	newest      time.Time
}

func newPages(rows, limit int) *pages { return &pages{rows, limit, time.Now().UTC()} }

func (p *pages) RoundTrip(r *http.Request) (*http.Response, error) {
	query := r.URL.Query()
	page, _ := strconv.Atoi(query.Get("page"))
	limit, _ := strconv.Atoi(query.Get("limit"))
	b := devkit.LogPage(p.rows, page, limit, p.newest)
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(b)), ContentLength: int64(len(b)), Request: r}, nil
}

func (p *pages) poller(t testing.TB, sink poll.Sink) *poll.Poller {
	t.Helper()
	api, err := mail.New(mail.Config{URL: "http://127.0.0.1", Key: clients.NewSecret("key")}, clients.Transport(p))
	if err != nil {
		t.Fatal(err)
	}
	return &poll.Poller{Upstream: api, Sink: sink, Interval: time.Hour, Limit: p.limit, Overlap: 15 * time.Minute, Logger: zerolog.Nop()}
}

// Two pollers sweep one log, the server is restarted under them, and a third one
// comes when all is published.
func TestPollersPublishALogOnce(t *testing.T) {
	n, nc := devtest.Provisioned(t)
	withoutDuplicateWindow(t, nc)
	const rows = 10_000
	upstream := newPages(rows, 100)
	sweep := func(told func(string, int)) {
		ctx, stop := context.WithTimeout(context.Background(), time.Minute)
		defer stop()
		p := upstream.poller(t, newSink(t, nc))
		p.Interval, p.Published = 100*time.Millisecond, told
		p.Lag = func(time.Duration) {
			if w, err := newSink(t, nc).Watermark(ctx); err == nil && w.TotalRecord == rows && p.Fault() == "" {
				stop()
			}
		}
		if err := p.Run(ctx); err != nil {
			t.Error(err)
		}
	}
	var wg sync.WaitGroup
	var restart sync.Once
	for range 2 {
		wg.Go(func() {
			sweep(func(string, int) {
				restart.Do(func() {
					if err := n.Restart(); err != nil {
						t.Error(err)
					}
				})
			})
		})
	}
	wg.Wait()
	sweep(func(_ string, n int) { t.Errorf("%d events were published by a poller that came when all was", n) })
	once(t, storedIDs(t, nc), rows)
}

// BenchmarkLearn reads 200,000 ids.
func BenchmarkLearn(b *testing.B) {
	const rows = 200_000
	_, nc := devtest.Provisioned(b)
	d := newSink(b, nc)
	learn(b, d, time.Time{})
	for n := 0; n < rows; n += 1000 {
		store(b, d, deliveries(n, n+1000))
	}
	for b.Loop() {
		if got := len(learn(b, newSink(b, nc), time.Time{})); got != rows {
			b.Fatalf("learned %d, want %d", got, rows)
		}
	}
	b.ReportMetric(float64(rows)*float64(b.N)/b.Elapsed().Seconds(), "ids/s")
}
