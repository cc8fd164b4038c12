package main

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/pkg/messages"
)

// stage measures a contestant.
type stage struct {
	*trial
	dir    string
	server *process
	nc     *nats.Conn
	js     jetstream.JetStream

	prepare func(ctx context.Context, prefix string) error // creates the streams and the work again
	watch   func(ctx context.Context, p *process, events int) (time.Duration, error)
}

func newStage(url, dir string, server *process, t *trial) (*stage, error) {
	nc, err := nats.Connect(url)
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(512))
	if err != nil {
		nc.Close()
		return nil, err
	}
	return &stage{trial: t, dir: dir, server: server, nc: nc, js: js}, nil
}

func (s *stage) close() { s.nc.Close() }

// figures are the results of one run of a contestant.
type figures struct {
	rate   float64 // requests per second
	cpu    float64 // CPU seconds of the contestant per 1,000 requests
	server float64 // CPU seconds of the server per 1,000 requests
	peak   float64 // MB resident
}

// run measures a contestant with new requests.
func (s *stage) run(ctx context.Context, c contestant, prefix string) (f figures, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.limit, fmt.Errorf("not done within %v", s.limit))
	defer cancel()
	if err := s.prepare(ctx, prefix); err != nil {
		return figures{}, err
	}
	before, err := s.server.ask("cpu")
	if err != nil {
		return figures{}, err
	}
	p, err := start(s.dir, prefix, c.path, c.args, c.env)
	if err != nil {
		return figures{}, err
	}
	took, err := s.watch(ctx, p, c.events)
	peak, hidden := p.peakMemory()
	if err := errors.Join(err, hidden, p.stop(syscall.SIGTERM)); err != nil {
		return figures{}, err
	}
	after, err := s.server.ask("cpu")
	if err != nil {
		return figures{}, err
	}
	if peak == 0 {
		peak = p.maxRSS()
	}
	thousands := float64(s.items) / 1000
	return figures{rate: float64(s.items) / took.Seconds(), cpu: p.cpu().Seconds() / thousands,
		server: (after - before) / thousands, peak: float64(peak) / 1e6}, nil
}

// recreate deletes streams and creates them again.
func (s *stage) recreate(ctx context.Context, streams ...string) error {
	for _, name := range streams {
		if err := s.js.DeleteStream(ctx, name); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			return err
		}
	}
	plan, err := bus.Plan(ctx, s.js, bus.Limits{MaxPayload: s.nc.MaxPayload()})
	if err != nil {
		return err
	}
	return bus.Apply(ctx, plan, false, func(bus.Change) {})
}

// publish publishes the requests, each with its id.
func (s *stage) publish(ctx context.Context, prefix string) error {
	if err := s.recreate(ctx, bus.MandateRequests, bus.MandateEvents); err != nil {
		return err
	}
	for n := range s.items {
		id := fmt.Sprintf("%s-%d", prefix, n)
		if _, err := s.js.PublishAsync(messages.Enroll.Requested(), enrollmentNumber(id), jetstream.WithMsgID(id), jetstream.WithStallWait(time.Minute)); err != nil {
			return err
		}
	}
	select {
	case <-s.js.PublishAsyncComplete():
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	stream, err := s.js.Stream(ctx, bus.MandateRequests)
	if err == nil && stream.CachedInfo().State.Msgs != uint64(s.items) {
		err = fmt.Errorf("%d of %d requests were published", stream.CachedInfo().State.Msgs, s.items)
	}
	return err
}

// enrollmentNumber is a request of typical size: the fields that the document requires.
func enrollmentNumber(id string) []byte {
	return fmt.Appendf(nil, `{"portal_key":"portal","order_number":"%s","amount":100,"payer_id_type":1,"payer_id":"900101011234",`+
		`"payer_name":"Test Payer","payer_email":"payer@example.test","payer_telephone_number":"60190000000",`+
		`"frequency_mode":"MT","application_reason":"Enrollment for %[1]s"}`, id)
}

// settled waits until every outcome is stored and every request is acknowledged. It returns
// the time from the first event to the last, by the server's clock.
func (s *stage) settled(ctx context.Context, p *process, events int) (time.Duration, error) {
	outcomes, err := s.js.Stream(ctx, bus.MandateEvents)
	if err != nil {
		return 0, err
	}
	left, err := s.js.Stream(ctx, bus.MandateRequests)
	if err != nil {
		return 0, err
	}
	want := uint64(s.items * events)
	for {
		e, err := outcomes.Info(ctx)
		if err != nil {
			return 0, err
		}
		r, err := left.Info(ctx)
		if err != nil {
			return 0, err
		}
		if e.State.Msgs >= want && r.State.Msgs == 0 {
			return e.State.LastTime.Sub(e.State.FirstTime), s.verify(ctx, outcomes, want)
		}
		if err := s.wait(ctx, p); err != nil {
			return 0, fmt.Errorf("%d requests were left: %w", r.State.Msgs, err)
		}
	}
}

// wait is the pause between two checks of the progress.
func (s *stage) wait(ctx context.Context, p *process) error {
	if !pause(ctx, 100*time.Millisecond) {
		return context.Cause(ctx)
	}
	select {
	case <-p.ended:
		return fmt.Errorf("ended early: %s", p.logTail())
	default:
		return nil
	}
}

// verify makes sure that no work was left out.
func (s *stage) verify(ctx context.Context, stream jetstream.Stream, want uint64) error {
	i, err := stream.Info(ctx, jetstream.WithSubjectFilter(messages.Enroll.Subject(messages.Succeeded, "*")))
	if err != nil {
		return err
	}
	if len(i.State.Subjects) != s.items || i.State.Msgs != want {
		return fmt.Errorf("%d requests succeeded with %d events, want %d with %d", len(i.State.Subjects), i.State.Msgs, s.items, want)
	}
	return nil
}
