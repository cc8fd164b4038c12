package consumer_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"errand/internal/attempt"
	"errand/internal/bus"
	"errand/internal/consumer"
	"errand/internal/devkit/devtest"
	"errand/internal/enroll"
	"errand/internal/hold"
	"errand/pkg/clients"
	"errand/pkg/clients/mandate"
	"errand/pkg/messages"
)

// at64 is the concurrency that the programs have by default.
const at64 = 64

// One operation is one enrollment from its queue to its acknowledgement: two events
// stored, one call that is answered at once without a network. The broker runs in
// this process, so that its time and allocations count too: compare, and do not add.
func BenchmarkSettle(b *testing.B) {
	_, nc := devtest.Provisioned(b)
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(512))
	if err != nil {
		b.Fatal(err)
	}
	publish(b, js)
	publisher, err := bus.NewPublisher(nc)
	if err != nil {
		b.Fatal(err)
	}
	found, err := bus.Check(b.Context(), js, []bus.Queue{bus.EnrollQueue})
	if err != nil {
		b.Fatal(err)
	}
	api, err := mandate.New(mandate.Config{URL: "http://127.0.0.1", Token: clients.NewSecret("token")},
		clients.Transport(atOnce{}), clients.MaxConns(at64))
	if err != nil {
		b.Fatal(err)
	}
	settled := make(chan string, b.N)
	caller := &attempt.Caller{Timeout: 30 * time.Second, Slots: make(hold.Slots, at64)}
	c := consumer.New(consumer.Settings{Conn: nc, Log: bus.EventStore{Publisher: publisher, Source: "/errand/bench"}, Dead: publisher,
		InFlight: make(hold.Slots, at64+at64/4), GiveUpAfter: time.Hour, Kept: func() time.Duration { return 0 }, Newer: func() bool { return false },
		Logger:   zerolog.New(io.Discard).With().Timestamp().Logger(),
		Settled:  func(_ messages.Operation, outcome string, _ time.Duration) { settled <- outcome },
		Panicked: func(messages.Operation) {}},
		found.Queues[bus.EnrollQueue.Name], &hold.Hold{Interval: time.Second, Log: zerolog.Nop()},
		consumer.Enrollments((&enroll.Handler{Upstream: api, Caller: caller, Zone: time.UTC}).Handle))
	ctx, stop := context.WithCancel(b.Context())
	ran := make(chan error, 1)
	b.ReportAllocs()
	b.ResetTimer()
	go func() { ran <- c.Run(ctx, b.Context()) }()
	for range b.N {
		if outcome := <-settled; outcome != "succeeded" {
			b.Errorf("a request ended as %q, want succeeded", outcome)
		}
	}
	b.StopTimer()
	stop()
	if err := <-ran; err != nil {
		b.Fatal(err)
	}
}

// publish puts b.N enrollments into the queue.
func publish(b *testing.B, js jetstream.JetStream) {
	b.Helper()
	for n := range b.N {
		body := fmt.Appendf(nil, `{"portal_key":"portal","order_number":"DD%d","amount":100,"payer_id_type":1,"payer_id":"900101011234",`+
			`"payer_name":"Test Payer","payer_email":"payer@example.test","payer_telephone_number":"60190000000",`+
			`"frequency_mode":"MT","application_reason":"Enrollment"}`, n)
		_, err := js.PublishAsync(messages.Enroll.Requested(), body, jetstream.WithMsgID(fmt.Sprintf("request-%d", n)), jetstream.WithStallWait(time.Minute))
		if err != nil {
			b.Fatal(err)
		}
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-b.Context().Done():
		b.Fatal("the requests were not taken in")
	}
}

// atOnce is an upstream in memory.
type atOnce struct{}

func (atOnce) RoundTrip(r *http.Request) (*http.Response, error) {
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return nil, err
	}
	const answer = `{"amount":100,"application_type":"Enrollment","url":"https://mandate.example.test/intent/DD1"}`
	return &http.Response{StatusCode: http.StatusCreated, Header: http.Header{"Content-Type": {"application/json"}},
		ContentLength: int64(len(answer)), Body: io.NopCloser(strings.NewReader(answer)), Request: r}, nil
}
