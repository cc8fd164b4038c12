package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"errand/internal/bus"
	"errand/internal/requests/admission"
	"errand/internal/requests/attempt"
	"errand/internal/requests/consumer"
	"errand/internal/requests/enroll"
	"errand/internal/requests/hold"
	mailing "errand/internal/requests/send"
	"errand/internal/sandbox/devkit/devtest"
	"errand/internal/wire/mailkey"
	"errand/pkg/clients"
	"errand/pkg/clients/mail"
	"errand/pkg/clients/mandate"
	"errand/pkg/messages"
)

// at64 is the concurrency that the programs have by default.
const at64 = 64

// work is a kind of request and what settles it. One is settled from its queue to its
// acknowledgement by one call that is answered at once without a network.
type work struct {
	queue   bus.Queue
	subject string
	body    string // with the number of the request
	outcome string
	make    func(testing.TB, consumer.Settings, bus.EventStore, *attempt.Caller, consumer.Queue, *hold.Hold) runner
}

type runner interface {
	Run(ctx, hard context.Context) error
}

var enrollments = work{bus.EnrollQueue, messages.Enroll.Requested(),
	`{"portal_key":"portal","order_number":"DD%d","amount":100,"payer_id_type":1,"payer_id":"900101011234",` +
		`"payer_name":"Test Payer","payer_email":"payer@example.test","payer_telephone_number":"60190000000",` +
		`"frequency_mode":"MT","application_reason":"Enrollment"}`, "succeeded",
	func(t testing.TB, s consumer.Settings, _ bus.EventStore, caller *attempt.Caller, queue consumer.Queue, h *hold.Hold) runner {
		api, err := mandate.New(mandate.Config{URL: "http://127.0.0.1", Token: clients.NewSecret("api-token")},
			clients.Transport(atOnce(`{"amount":100,"application_type":"Enrollment","url":"https://mandate.example.test/intent/DD1"}`)),
			clients.MaxConns(at64))
		if err != nil {
			t.Fatal(err)
		}
		return consumer.New(s, queue, h, (&enroll.Handler{Upstream: api, Caller: caller, Zone: time.UTC}).Handle, enroll.Ended)
	}}

var mails = work{bus.SendQueue, messages.Send.Requested(),
	`{"to":["one%d@example.test"],"from":"shop@example.test","subject":"Your order","content":"Thank you."}`, "accepted",
	func(t testing.TB, s consumer.Settings, store bus.EventStore, caller *attempt.Caller, queue consumer.Queue, h *hold.Hold) runner {
		api, err := mail.New(mail.Config{URL: "http://127.0.0.1", Key: clients.NewSecret("secret-key")},
			clients.Transport(atOnce(`{"error":false,"status_code":200,"message":"OK","data":{"total_recipient":1}}`)), clients.MaxConns(at64))
		if err != nil {
			t.Fatal(err)
		}
		return consumer.New(s, queue, h, (&mailing.Handler{Upstream: api, Caller: caller, Size: 1000, Parallel: 4,
			Open: func(context.Context, messages.ObjectRef) (io.Reader, int64, error) {
				return nil, 0, errors.ErrUnsupported
			},
			Secret: mailkey.NewSecret("bench")}).Handle, mailing.Ended)
	}}

// settle publishes n requests and settles them, between begin and end. The broker runs in
// this process, so that its time and allocations count too: compare, and do not add.
func (w work) settle(t testing.TB, n int, begin, end func()) {
	t.Helper()
	_, nc := devtest.Provisioned(t)
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(512))
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if _, err := js.PublishAsync(w.subject, fmt.Appendf(nil, w.body, i), jetstream.WithMsgID(fmt.Sprintf("request-%d", i)),
			jetstream.WithStallWait(time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-t.Context().Done():
		t.Fatal("the requests were not taken in")
	}
	publisher, err := bus.NewPublisher(nc)
	if err != nil {
		t.Fatal(err)
	}
	found, err := bus.Check(t.Context(), js, []bus.Queue{w.queue})
	if err != nil {
		t.Fatal(err)
	}
	settled := make(chan string, n)
	store := bus.EventStore{Publisher: publisher, Source: "/errand/bench"}
	caller := &attempt.Caller{Timeout: 30 * time.Second, Slots: admission.NewSlots(at64)}
	settings := consumer.Settings{Log: store, Dead: publisher.StoreDeadLetter,
		InFlight: admission.NewSlots(at64 + at64/4), GiveUpAfter: time.Hour, Kept: func() time.Duration { return 0 },
		Newer:   func() bool { return false },
		Logger:  zerolog.New(io.Discard).With().Timestamp().Logger(),
		Settled: func(o consumer.Outcome) { settled <- string(o.State) }, Panicked: func(messages.Operation) {}}
	c := w.make(t, settings, store, caller, bus.NewPull(nc, found.Queues[w.queue.Name]), &hold.Hold{Interval: time.Second, Log: zerolog.Nop()})
	ctx, stop := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	begin()
	go func() { ran <- c.Run(ctx, t.Context()) }()
	for range n {
		if outcome := <-settled; outcome != w.outcome {
			t.Errorf("a request ended as %q, want %s", outcome, w.outcome)
		}
	}
	end()
	stop()
	if err := <-ran; err != nil {
		t.Fatal(err)
	}
}

func BenchmarkSettle(b *testing.B) {
	b.ReportAllocs()
	enrollments.settle(b, b.N, b.ResetTimer, b.StopTimer)
}

func BenchmarkSettleMail(b *testing.B) {
	b.ReportAllocs()
	mails.settle(b, b.N, b.ResetTimer, b.StopTimer)
}

// What a request costs must not grow unseen. Its allocations hardly vary, unlike its time; the broker's buffers make
// their bytes vary by some percent. Where this fails, BenchmarkSettle with -memprofile shows what allocates. Where that
// is worth its price write the new figures here, and say in the commit what they buy; where one falls by more than a
// few percent, write that here too.
func TestARequestAllocatesNoMoreThanItDid(t *testing.T) {
	devtest.Full(t) // under the race detector they are others
	const n, more, larger = 1500, 1.05, 1.15
	for what, c := range map[string]struct {
		work          work
		allocs, bytes float64
	}{
		"an enrollment":              {enrollments, 172, 23_900},
		"a message to one recipient": {mails, 200, 24_500},
	} {
		var before, after runtime.MemStats
		c.work.settle(t, n, func() { runtime.ReadMemStats(&before) }, func() { runtime.ReadMemStats(&after) })
		allocs, bytes := float64(after.Mallocs-before.Mallocs)/n, float64(after.TotalAlloc-before.TotalAlloc)/n
		t.Logf("%s allocates %.1f times, %.0f bytes, with its part of the broker's", what, allocs, bytes)
		if allocs > more*c.allocs || bytes > larger*c.bytes {
			t.Errorf("%s allocates %.1f times and %.0f bytes, the figures here are %.0f and %.0f: see the comment", what, allocs, bytes, c.allocs,
				c.bytes)
		}
	}
}

// atOnce is an upstream in memory: its answer.
type atOnce string

func (a atOnce) RoundTrip(r *http.Request) (*http.Response, error) {
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: http.StatusCreated, Header: http.Header{"Content-Type": {"application/json"}},
		ContentLength: int64(len(a)), Body: io.NopCloser(strings.NewReader(string(a))), Request: r}, nil
}
