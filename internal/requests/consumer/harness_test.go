package consumer

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"errand/internal/bus"
	"errand/internal/history/historytest"
	"errand/internal/requests/admission"
	"errand/internal/requests/attempt"
	"errand/internal/requests/enroll"
	"errand/internal/requests/hold"
	"errand/internal/sandbox/devkit/devtest"
	"errand/pkg/messages"
)

// harness is a consumer of enrollments whose messages are a real server's, with a log in
// memory and a handler of the test's.
type harness struct {
	*Consumer[messages.EnrollRequest]
	t       *testing.T
	nc      *nats.Conn
	js      jetstream.JetStream
	log     *historytest.Log
	source  jetstream.Consumer
	acks    *nats.Subscription
	handled []string // ids
	settled []string // outcomes
	last    Outcome
	panics  int
	said    bytes.Buffer // its log
}

func newHarness(t *testing.T) *harness {
	t.Helper()
	_, nc := devtest.Provisioned(t)
	js, err := jetstream.New(nc)
	h := &harness{t: t, nc: nc, js: js, log: &historytest.Log{}}
	h.must(err)
	publisher, err := bus.NewPublisher(nc)
	h.must(err)
	found, err := bus.Check(t.Context(), js, []bus.Queue{bus.EnrollQueue})
	h.must(err)
	h.acks, err = nc.SubscribeSync("$JS.ACK.>")
	h.must(err)
	h.source = found.Queues[bus.EnrollQueue.Name]
	queue := bus.NewPull(nc, h.source)
	t.Cleanup(queue.Close)
	h.Consumer = New(Settings{InFlight: admission.NewSlots(8), Log: h.log, Dead: publisher.StoreDeadLetter, Later: publisher.Schedule,
		GiveUpAfter: 24 * time.Hour, Kept: func() time.Duration { return 0 },
		Newer:  func() bool { return false },
		Logger: zerolog.New(zerolog.SyncWriter(&h.said)), Settled: h.count,
		Panicked: func(messages.Operation) { h.panics++ }}, queue, &hold.Hold{Interval: time.Minute}, nil, enroll.Ended)
	h.handle(succeeds)
	return h
}

func (h *harness) count(o Outcome) {
	h.last = o
	outcome := string(o.State)
	if o.Repeated {
		outcome = "repeated"
	}
	h.settled = append(h.settled, outcome)
}

func (h *harness) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

// handle sets the handler.
func (h *harness) handle(handler Handler[messages.EnrollRequest]) {
	h.Consumer.handle = func(ctx context.Context, r attempt.Request[messages.EnrollRequest]) (messages.Event, error) {
		h.handled = append(h.handled, r.History.ID)
		return handler(ctx, r)
	}
}

// succeeds is a handler that makes no call.
func succeeds(_ context.Context, r attempt.Request[messages.EnrollRequest]) (messages.Event, error) {
	return r.History.Event(messages.Succeeded, &messages.EnrollSucceeded{OrderNumber: r.Body.OrderNumber, Enrollment: json.RawMessage(`{}`),
		Fingerprint: r.History.Fingerprint}), nil
}

// ends is a handler that makes no call, and ends every request in a state.
func ends(s messages.State, body messages.Body) Handler[messages.EnrollRequest] {
	return func(_ context.Context, r attempt.Request[messages.EnrollRequest]) (messages.Event, error) {
		return r.History.Event(s, body), nil
	}
}

// enrollment is the body of a request; fields are added to it, or replace its own.
func enrollment(fields map[string]any) string {
	all := map[string]any{"payer_name": "Payer", "payer_email": "payer@example.test", "payer_id_type": 1, "payer_id": "900101015555",
		"payer_telephone_number": "60190000000", "order_number": "DD-1", "amount": "100", "application_reason": "Rent", "frequency_mode": "MT",
		"return_url": "https://shop.example.test/return"}
	maps.Copy(all, fields)
	body, _ := json.Marshal(all) // texts and numbers always encode
	return string(body)
}

// open publishes a message and reads it as the n-th delivery of a request.
func (h *harness) open(header, body string, n uint64) *delivery[messages.EnrollRequest] {
	h.t.Helper()
	m := nats.NewMsg("mandate.enroll.requested")
	m.Data = []byte(body)
	if header != "" {
		m.Header.Set("Other-Id", header)
	}
	_, err := h.js.PublishMsg(h.t.Context(), m)
	h.must(err)
	r, err := h.lanes[0].queue.Next(h.t.Context(), time.Second)
	h.must(err)
	if header != "" { // the stream would take it for a duplicate
		r.Header.Set(nats.MsgIdHdr, header)
	}
	permit, err := h.hold.Acquire(h.t.Context())
	h.must(err)
	d := h.Consumer.open(taken{r, h.lanes[0]}, permit)
	d.Delivered = n
	return d
}

// deliver settles a message as the n-th delivery of a request, and returns what the server is
// answered: "+ACK" or "nak 5s".
func (h *harness) deliver(ctx context.Context, body string, n uint64) string {
	h.t.Helper()
	h.settle(ctx, h.open("", body, n))
	m, err := h.acks.NextMsg(5 * time.Second)
	h.must(err)
	verb, options, _ := strings.Cut(string(m.Data), " ")
	if verb != "-NAK" {
		return verb
	}
	var nak struct{ Delay time.Duration }
	if options != "" {
		h.must(json.Unmarshal([]byte(options), &nak))
	}
	return fmt.Sprintf("nak %v", nak.Delay.Round(time.Second))
}

// events lists the log's events: "a1 succeeded", with ids that the queue gives named own.
func (h *harness) events() (all []string) {
	for _, e := range h.log.Events() {
		tokens := strings.Split(e.Subject, ".")
		all = append(all, h.name(tokens[3])+" "+tokens[2])
	}
	return all
}

// name calls the ids that the queue gives "own" and "own at its time".
func (h *harness) name(id string) string {
	rest, ok := strings.CutPrefix(id, "MANDATE_REQUESTS-")
	switch {
	case !ok:
		return id
	case strings.Contains(rest, "-"):
		return "own at its time"
	}
	return "own"
}

// dead is the last dead letter, or nil.
func (h *harness) dead() *jetstream.RawStreamMsg {
	h.t.Helper()
	s, err := h.js.Stream(h.t.Context(), bus.DeadLetters)
	h.must(err)
	m, err := s.GetLastMsgForSubject(h.t.Context(), "dead.mandate.enroll.requested")
	if err != nil {
		return nil
	}
	return m
}
