package consumer_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"errand/internal/bus"
	"errand/internal/requests/admission"
	"errand/internal/requests/attempt"
	"errand/internal/requests/consumer"
	"errand/internal/requests/enroll"
	"errand/internal/requests/hold"
	"errand/internal/retry"
	"errand/internal/sandbox/devkit"
	"errand/internal/sandbox/devkit/devtest"
	"errand/pkg/clients"
	"errand/pkg/clients/mandate"
	"errand/pkg/messages"
)

// stormy is an upstream whose enrollments go wrong in all ways, in turn.
type stormy struct {
	mu    sync.Mutex
	calls int
	calm  bool
}

func (s *stormy) RoundTrip(r *http.Request) (*http.Response, error) {
	answer := func(status int, body string) (*http.Response, error) {
		return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}},
			ContentLength: int64(len(body)), Body: io.NopCloser(bytes.NewReader([]byte(body))), Request: r}, nil
	}
	if r.Method == http.MethodGet {
		return answer(http.StatusOK, `{"data":[],"links":{"next":null},"meta":{"total":0}}`)
	}
	s.mu.Lock()
	n, calm := s.calls, s.calm
	s.calls++
	s.mu.Unlock()
	if calm {
		n = 0
	}
	switch n % 9 {
	case 1:
		return answer(http.StatusUnprocessableEntity, `{}`)
	case 2:
		return answer(http.StatusServiceUnavailable, `{}`)
	case 3:
		return answer(http.StatusForbidden, `{}`)
	case 4:
		return answer(http.StatusInternalServerError, `{}`)
	case 5:
		return answer(http.StatusCreated, `{"half":`)
	case 6:
		<-r.Context().Done()
		return nil, r.Context().Err()
	case 7:
		panic("by hand")
	}
	return answer(http.StatusCreated, `{"url":"https://mandate.example.test/intent/DD1"}`)
}

// Whatever a call's end is, and however the program ends, nothing is left of it: no
// request in flight, no slot, no goroutine.
func TestNothingIsLeftOfAStorm(t *testing.T) {
	devtest.Full(t)
	const requests, concurrency = 120, 6
	for _, c := range []struct {
		name string
		stop time.Duration // after the storm began; then the next program goes on
	}{{"in peace", 0}, {"stopped in the middle", 300 * time.Millisecond}} {
		t.Run(c.name, func(t *testing.T) {
			devtest.InBubble(t, func(t *testing.T, _ *devkit.NATS, nc *nats.Conn) {
				js, err := jetstream.New(nc)
				if err != nil {
					t.Fatal(err)
				}
				for n := range requests {
					body := fmt.Appendf(nil, `{"request_id":"r%d","order_number":"DD%d","amount":100,"payer_id_type":1,"payer_id":"900101011234",`+
						`"payer_name":"Test Payer","payer_email":"payer@example.test","payer_telephone_number":"60190000000",`+
						`"frequency_mode":"MT","application_reason":"Enrollment"}`, n, n)
					if n%10 == 0 {
						body = []byte(`{"order_number":`)
					}
					if _, err := js.Publish(t.Context(), messages.Enroll.Requested(), body); err != nil {
						t.Fatal(err)
					}
				}
				publisher, err := bus.NewPublisher(nc)
				if err != nil {
					t.Fatal(err)
				}
				found, err := bus.Check(t.Context(), js, []bus.Queue{bus.EnrollQueue})
				if err != nil {
					t.Fatal(err)
				}
				upstream := &stormy{}
				api, err := mandate.New(mandate.Config{URL: "http://127.0.0.1", Token: clients.NewSecret("token"),
					PortalKey: clients.NewSecret("portal")},
					clients.Transport(upstream), clients.Timeout(30*time.Second))
				if err != nil {
					t.Fatal(err)
				}
				settled := 0
				runFor := func(while time.Duration) {
					ctx, stop := context.WithCancel(t.Context())
					hard, end := context.WithCancel(context.WithoutCancel(ctx))
					defer end()
					var mu sync.Mutex
					caller := &attempt.Caller{Policy: retry.Policy{First: 200 * time.Millisecond, Max: 10 * time.Second, Tries: 5},
						Timeout: 30 * time.Second, Slots: admission.NewSlots(concurrency), Stop: ctx.Done()}
					settings := consumer.Settings{Log: bus.EventStore{Publisher: publisher, Source: "/errand/test"}, Dead: publisher.StoreDeadLetter,
						InFlight: admission.NewSlots(concurrency + 2), GiveUpAfter: 24 * time.Hour, Kept: func() time.Duration { return 0 },
						Newer:  func() bool { return false },
						Logger: zerolog.Nop(), Panicked: func(messages.Operation) {},
						Settled: func(consumer.Outcome) { mu.Lock(); settled++; mu.Unlock() }}
					all := consumer.New(settings, bus.NewPull(nc, found.Queues[bus.EnrollQueue.Name]),
						&hold.Hold{Interval: 10 * time.Second, Log: zerolog.Nop()},
						(&enroll.Handler{Upstream: api, Caller: caller, Zone: time.UTC}).Handle, enroll.Ended)
					ended := make(chan error, 1)
					go func() { ended <- all.Run(ctx, hard) }()
					time.Sleep(while)
					stop()
					time.AfterFunc(2*time.Second, end)
					if err := <-ended; err != nil {
						t.Error(err)
					}
					if all.Requests() != 0 || settings.InFlight.Taken() != 0 || caller.Slots.Taken() != 0 {
						t.Errorf("after %v: %d requests are leased, %d in flight, %d slots are taken", while, all.Requests(), settings.InFlight.Taken(),
							caller.Slots.Taken())
					}
				}
				if c.stop > 0 {
					runFor(c.stop)
				}
				runFor(time.Hour)
				upstream.mu.Lock()
				upstream.calm = true
				upstream.mu.Unlock()
				runFor(time.Hour)
				if settled != requests {
					t.Errorf("%d of %d requests are settled", settled, requests)
				}
			})
		})
	}
}
