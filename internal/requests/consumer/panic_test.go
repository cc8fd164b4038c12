package consumer_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"errand/internal/bus"
	"errand/internal/requests/admission"
	"errand/internal/requests/attempt"
	"errand/internal/requests/consumer"
	"errand/internal/requests/hold"
	mailing "errand/internal/requests/send"
	"errand/internal/sandbox/devkit"
	"errand/internal/sandbox/devkit/devtest"
	"errand/pkg/messages"
)

func TestMain(m *testing.M) { devtest.Main(m) }

// send is a request for a message that is always the same.
const send = `{"request_id":"m1","to":["a@example.test"],"subject":"s","content":"c"}`

// A request whose handling panics each time is taken out of the queue at its third
// delivery, whatever its history holds by then, and each panic is counted.
func TestARequestThatPanicsEachTimeEnds(t *testing.T) {
	for _, c := range []struct {
		name     string
		announce bool // a call, before the panic
		returned bool // the panic was caught by the handler, in another goroutine
		want     messages.State
	}{
		{"before it announced a call", false, false, messages.Failed},
		{"after it announced a call", true, false, messages.Uncertain},
		{"in a batch, after it announced calls", true, true, messages.Uncertain},
	} {
		t.Run(c.name, func(t *testing.T) {
			devtest.InBubble(t, func(t *testing.T, _ *devkit.NATS, nc *nats.Conn) {
				var handled, panics atomic.Int64
				run(t, nc, &panics, func(ctx context.Context, r attempt.Request[messages.SendRequest]) (messages.Event, error) {
					handled.Add(1)
					if c.announce {
						err := r.History.Store(ctx, messages.Started, &messages.SendStarted{Fingerprint: r.History.Fingerprint,
							Deadline: messages.Time{Time: time.Now().Add(35 * time.Second)}, Recipients: 1, Batches: 1, BatchSize: 1})
						if err != nil {
							return messages.Event{}, err
						}
					}
					if c.returned {
						return messages.Event{}, attempt.Panicked("by hand")
					}
					panic("by hand")
				})
				js, err := jetstream.New(nc)
				if err == nil {
					_, err = js.Publish(t.Context(), "mail.send.requested", []byte(send))
				}
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(10 * time.Minute)
				events, err := js.Stream(t.Context(), bus.MailEvents)
				if err != nil {
					t.Fatal(err)
				}
				last, err := events.GetLastMsgForSubject(t.Context(), "mail.send.*.m1")
				if err != nil || !strings.HasPrefix(last.Subject, fmt.Sprintf("mail.send.%s.", c.want)) {
					t.Errorf("want it %s: %v, %v", c.want, last, err)
				}
				if n := handled.Load(); n > 3 || panics.Load() != n { // one delivery may find the deadline of its own call before it
					t.Errorf("handled %d times, %d panics counted; want 3 at most", n, panics.Load())
				}
				var left struct{ State struct{ Messages int } }
				info, err := nc.Request("$JS.API.STREAM.INFO.MAIL_REQUESTS", nil, time.Second)
				if err != nil || json.Unmarshal(info.Data, &left) != nil || left.State.Messages != 0 {
					t.Errorf("the queue holds %d messages, %v", left.State.Messages, err)
				}
			})
		})
	}
}

// run runs a consumer of messages until the test ends.
func run(t *testing.T, nc *nats.Conn, panics *atomic.Int64, handle consumer.Handler[messages.SendRequest]) {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	publisher, err := bus.NewPublisher(nc)
	if err != nil {
		t.Fatal(err)
	}
	found, err := bus.Check(t.Context(), js, []bus.Queue{bus.SendQueue})
	if err != nil {
		t.Fatal(err)
	}
	c := consumer.New(consumer.Settings{Log: bus.EventStore{Publisher: publisher, Source: "/errand/test"}, Dead: publisher.StoreDeadLetter,
		InFlight: admission.NewSlots(4), GiveUpAfter: time.Hour, Kept: func() time.Duration { return 0 }, Newer: func() bool { return false },
		Logger: zerolog.Nop(), Settled: func(consumer.Outcome) {}, Panicked: func(messages.Operation) { panics.Add(1) }},
		bus.NewPull(nc, found.Queues[bus.SendQueue.Name]), &hold.Hold{Interval: 10 * time.Second, Log: zerolog.Nop()},
		handle, mailing.Ended)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx, context.WithoutCancel(ctx)) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
