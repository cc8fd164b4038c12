package consumer_test

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"

	"errand/internal/bus"
	"errand/internal/history/historytest"
	"errand/internal/requests/admission"
	"errand/internal/requests/attempt"
	"errand/internal/requests/consumer"
	"errand/internal/requests/enroll"
	"errand/internal/requests/hold"
	"errand/internal/requests/query"
	"errand/internal/retry"
	"errand/pkg/clients"
	"errand/pkg/clients/mandate"
	"errand/pkg/messages"
)

// queue is a queue in memory, whose requests are never delivered again by themselves.
type queue struct {
	mu      sync.Mutex
	waiting []*queued
	left    int // requests that are not acknowledged
}

type queued struct {
	*queue
	bus.Request
	due time.Time
}

func newQueue(subject string, bodies ...string) *queue {
	q := &queue{left: len(bodies)}
	for i, body := range bodies {
		w := &queued{queue: q, due: time.Now()}
		w.Request = bus.Request{Subject: subject, Stream: bus.MandateRequests, Sequence: uint64(i + 1), Data: []byte(body),
			Published: time.Now(), Acker: w}
		q.waiting = append(q.waiting, w)
	}
	return q
}

func (w *queued) InProgress(...nats.AckOpt) error { return nil }

func (w *queued) Ack(...nats.AckOpt) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.left--
	return nil
}

// NakWithDelay puts a request before those that were never delivered, as JetStream does.
func (w *queued) NakWithDelay(d time.Duration, _ ...nats.AckOpt) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.due = time.Now().Add(d)
	w.waiting = slices.Insert(w.waiting, 0, w)
	return nil
}

func (q *queue) Name() string           { return "queue" }
func (q *queue) AckWait() time.Duration { return retry.AckWait }
func (q *queue) Max() int               { return 256 }
func (q *queue) Close()                 {}

func (q *queue) Take(context.Context) (*bus.Request, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.IndexFunc(q.waiting, func(w *queued) bool { return !w.due.After(time.Now()) })
	if i < 0 {
		return nil, bus.ErrNoMessage
	}
	r := q.waiting[i].Request
	r.Delivered++
	q.waiting[i].Delivered++
	q.waiting = slices.Delete(q.waiting, i, i+1)
	return &r, nil
}

func (q *queue) Next(ctx context.Context, _ time.Duration) (*bus.Request, error) {
	for end := time.Now().Add(retry.PullExpiry); time.Now().Before(end) && ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
		if r, _ := q.Take(ctx); r != nil {
			return r, nil
		}
	}
	return nil, cmp.Or(ctx.Err(), bus.ErrNoMessage)
}

func (q *queue) Some(ctx context.Context, n int, take func(*bus.Request)) error {
	for range n {
		r, err := q.Take(ctx)
		if err != nil {
			return err
		}
		take(r)
	}
	return nil
}

func (q *queue) Waiting(context.Context) (pending, unacknowledged int, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting), q.left - len(q.waiting), nil
}

func (q *queue) unsettled() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.left
}

// inASecond answers each call after a second: a submission well, a page as one of so many as its order number says.
type inASecond struct{}

func (inASecond) RoundTrip(r *http.Request) (*http.Response, error) {
	time.Sleep(time.Second)
	body := `{"amount":100,"application_type":"Enrollment","url":"https://mandate.example.test/intent/DD1"}`
	if r.Method == http.MethodGet {
		page, pages := 1, 1
		_, _ = fmt.Sscan(r.URL.Query().Get("page"), &page)
		_, _ = fmt.Sscan(r.URL.Query().Get("order_number"), &pages)
		body = fmt.Sprintf(`{"data":[{"id":"TX-%d"}],"meta":{"current_page":%d,"last_page":%d,"total":%d}}`, page, page, pages, pages)
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
		ContentLength: int64(len(body)), Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
}

// listings are requests for lists of so many pages.
func listings(n, pages int) (bodies []string) {
	for i := range n {
		bodies = append(bodies, fmt.Sprintf(`{"request_id":"of-%d-%d","order_number":"%d"}`, pages, i, pages))
	}
	return bodies
}

// Listings of hundreds of pages keep neither enrollments nor other listings waiting, and each page is read once.
func TestLongListingsKeepNoOtherRequestsWaiting(t *testing.T) {
	const concurrency, long, pages, others = 8, 60, 500, 60
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		api, err := mandate.New(mandate.Config{URL: "http://127.0.0.1", Token: clients.NewSecret("token")}, clients.Transport(inASecond{}))
		if err != nil {
			t.Fatal(err)
		}
		log := &historytest.Log{}
		caller := &attempt.Caller{Policy: retry.Policy{First: time.Second, Max: 10 * time.Second, Tries: 5}, Timeout: 30 * time.Second,
			Slots: admission.NewSlots(concurrency), Stop: ctx.Done()}
		settings := consumer.Settings{Log: log, InFlight: admission.NewSlots(concurrency + concurrency/4), GiveUpAfter: 24 * time.Hour,
			Kept: func() time.Duration { return 0 }, Newer: func() bool { return false }, Logger: zerolog.Nop(),
			Settled: func(consumer.Outcome) {}, Panicked: func(messages.Operation) {}}
		var bodies []string
		for i := range others {
			bodies = append(bodies, fmt.Sprintf(enrollments.body, i))
		}
		enrolling := newQueue(messages.Enroll.Requested(), bodies...)
		short := newQueue(messages.Transactions.Requested(), slices.Concat(listings(long, pages), listings(others, 3))...)
		var running sync.WaitGroup
		running.Go(func() {
			_ = consumer.New(settings, short, &hold.Hold{Interval: time.Minute},
				(&query.Transactions{Upstream: api, Caller: caller}).Handle, query.Ended).Run(ctx, t.Context())
		})
		time.Sleep(time.Minute) // they are under way
		running.Go(func() {
			_ = consumer.New(settings, enrolling, &hold.Hold{Interval: time.Minute},
				(&enroll.Handler{Upstream: api, Caller: caller, Zone: time.UTC}).Handle, enroll.Ended).Run(ctx, t.Context())
		})
		time.Sleep(time.Minute)
		if n := enrolling.unsettled(); n > 0 {
			t.Errorf("%d of %d enrollments wait after a minute", n, others)
		}
		time.Sleep(8 * time.Minute)
		if n := short.unsettled() - long; n > 0 {
			t.Errorf("%d of %d short listings wait after ten minutes", n, others)
		}
		stop()
		running.Wait()
		read := map[string]int{}
		for _, e := range log.Events() {
			if messages.StateOf(e.Subject) == messages.Page {
				read[e.Subject]++
				if got := historytest.Decode[messages.TransactionsPage](t, e).Page; got != read[e.Subject] {
					t.Fatalf("%s: page %d after %d pages", e.Subject, got, read[e.Subject]-1)
				}
			}
		}
		total, fewest := 0, pages
		for _, n := range read {
			total, fewest = total+n, min(fewest, n)
		}
		t.Logf("%d pages were read in ten minutes, %d at least of each listing", total, fewest)
		if least := 10 * 60 * concurrency / 3; total < least || len(read) != long+others || fewest < 3 {
			t.Errorf("%d pages of %d listings were read in ten minutes, %d at least of each; want %d", total, len(read), fewest, least)
		}
	})
}
