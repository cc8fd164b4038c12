package bus_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"errand/internal/devkit/devtest"
	"errand/internal/poll"
	"errand/pkg/clients"
	"errand/pkg/clients/mail"
)

// pages is an upstream without latency: every page of a log of rows, newest first,
// rendered before.
type pages struct {
	limit  int
	bodies map[string][]byte
}

func newPages(rows, limit int) *pages {
	p := &pages{limit: limit, bodies: map[string][]byte{}}
	now := time.Now().UTC()
	for page := 1; (page-1)*limit <= rows; page++ {
		b := []byte(`{"error":false,"status_code":200,"message":"OK","data":{"data":[`)
		for i := (page - 1) * limit; i < min(page*limit, rows); i++ {
			if i%limit > 0 {
				b = append(b, ',')
			}
			at := now.Add(-time.Duration(i) * time.Second)
			b = fmt.Appendf(b, `{"created_at":"%s","envelope_id":"%018x","interface":"api","domain":"example.test","from":"sender@example.test","to":"payer%d@example.test","delivered":1,"status":{"delivered":true,"ip":"192.0.2.25","mx":"mx1.example.test","response":"250 2.0.0 OK %x"}}`,
				at.Format(time.RFC3339), at.UnixMilli(), i, i)
		}
		b = fmt.Appendf(b, `],"total_record":%d,"total_page":%d,"current_page":%d,"limit":%d}}`, rows, (rows+limit-1)/limit, page, limit)
		p.bodies[strconv.Itoa(page)] = b
	}
	return p
}

func (p *pages) RoundTrip(r *http.Request) (*http.Response, error) {
	b := p.bodies[r.URL.Query().Get("page")]
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
// comes when all is told.
func TestPollersTellALogOnce(t *testing.T) {
	n, nc := devtest.Provisioned(t)
	withoutDuplicateWindow(t, nc)
	const rows = 10_000
	upstream := newPages(rows, 100)
	sweep := func(told func(string, int)) {
		ctx, stop := context.WithTimeout(context.Background(), time.Minute)
		defer stop()
		p := upstream.poller(t, teller(t, nc))
		p.Interval, p.Told = 100*time.Millisecond, told
		p.Lag = func(time.Duration) {
			if w, err := teller(t, nc).Watermark(ctx); err == nil && w.TotalRecord == rows && p.Fault() == "" {
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
	sweep(func(_ string, n int) { t.Errorf("%d events were told by a poller that came when all was told", n) })
	once(t, storedIDs(t, nc), rows)
}

// BenchmarkFirstSweep tells a log of 50,000 rows from the start.
func BenchmarkFirstSweep(b *testing.B) {
	const rows = 50_000
	for _, limit := range []int{100, 1000} {
		b.Run(strconv.Itoa(limit), func(b *testing.B) {
			upstream := newPages(rows, limit)
			for b.Loop() {
				b.StopTimer()
				_, nc := devtest.Provisioned(b)
				ctx, stop := context.WithCancel(b.Context())
				p := upstream.poller(b, teller(b, nc))
				p.Lag = func(time.Duration) { stop() }
				b.StartTimer()
				if err := p.Run(ctx); err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				if why := p.Fault(); why != "" {
					b.Fatal(why)
				}
				nc.Close()
				b.StartTimer()
			}
			b.ReportMetric(float64(rows)*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}

// BenchmarkLearn reads 200,000 ids.
func BenchmarkLearn(b *testing.B) {
	const rows = 200_000
	_, nc := devtest.Provisioned(b)
	d := teller(b, nc)
	learn(b, d, time.Time{})
	for n := 0; n < rows; n += 1000 {
		tell(b, d, deliveries(n, n+1000))
	}
	for b.Loop() {
		if got := len(learn(b, teller(b, nc), time.Time{})); got != rows {
			b.Fatalf("learned %d, want %d", got, rows)
		}
	}
	b.ReportMetric(float64(rows)*float64(b.N)/b.Elapsed().Seconds(), "ids/s")
}
