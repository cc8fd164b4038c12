package bus_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

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
	b := append(make([]byte, 0, 300*limit+200), `{"error":false,"status_code":200,"message":"OK","data":{"data":[`...)
	for i := (page - 1) * limit; i < min(page*limit, p.rows); i++ {
		if i > (page-1)*limit {
			b = append(b, ',')
		}
		at := p.newest.Add(-time.Duration(i) * time.Second)
		b = at.AppendFormat(append(b, `{"created_at":"`...), time.RFC3339)
		b = fmt.Appendf(b, `","envelope_id":"%018x","interface":"api","domain":"example.test","from":"sender@example.test","to":"payer%d@example.test","delivered":1,"status":{"delivered":true,"ip":"192.0.2.25","mx":"mx1.example.test","response":"250 2.0.0 OK %x"}}`, at.UnixMilli(), i, i)
	}
	b = fmt.Appendf(b, `],"total_record":%d,"total_page":%d,"current_page":%d,"limit":%d}}`, p.rows, (p.rows+limit-1)/limit, page, limit)
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

// BenchmarkFirstSweep tells a log from the start, beside a bare loop that only reads its
// pages and publishes its rows as they are: without headers, fences or memory. heap is
// what lives at the end of the sweep beyond what lived before, and counts the server's
// share too, which is in this process.
func BenchmarkFirstSweep(b *testing.B) {
	for _, rows := range []int{100_000, 1_000_000} {
		b.Run(strconv.Itoa(rows), func(b *testing.B) {
			upstream := newPages(rows, 1000)
			var swept, bare time.Duration
			var heap uint64
			for b.Loop() {
				bare += bareLoop(b, upstream)
				_, nc := devtest.Provisioned(b)
				ctx, stop := context.WithCancel(b.Context())
				p := upstream.poller(b, teller(b, nc))
				before := live()
				p.Lag = func(time.Duration) { stop(); heap = live() - before }
				began := time.Now()
				if err := p.Run(ctx); err != nil {
					b.Fatal(err)
				}
				swept += time.Since(began)
				if why := p.Fault(); why != "" {
					b.Fatal(why)
				}
				nc.Close()
			}
			told := float64(rows) * float64(b.N)
			b.ReportMetric(told/swept.Seconds(), "rows/s")
			b.ReportMetric(told/bare.Seconds(), "bare-rows/s")
			b.ReportMetric(bare.Seconds()/swept.Seconds(), "ratio")
			b.ReportMetric(float64(heap)/float64(rows), "heap-B/row")
		})
	}
}

// live is how much of the heap is in use.
func live() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// bareLoop reads all pages of the log and publishes their rows.
func bareLoop(b *testing.B, upstream *pages) time.Duration {
	b.Helper()
	_, nc := devtest.Provisioned(b)
	defer nc.Close()
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(upstream.limit))
	if err != nil {
		b.Fatal(err)
	}
	api := upstream.poller(b, nil).Upstream
	began := time.Now()
	for page := range (upstream.rows + upstream.limit - 1) / upstream.limit {
		found, err := api.LogPage(b.Context(), page+1, upstream.limit)
		if err != nil {
			b.Fatal(err)
		}
		for _, row := range found.Entries {
			if _, err := js.PublishAsync("mail.delivery.delivered.unmatched", row.Raw, jetstream.WithStallWait(time.Minute)); err != nil {
				b.Fatal(err)
			}
		}
	}
	<-js.PublishAsyncComplete()
	return time.Since(began)
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
