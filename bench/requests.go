package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/retry"
	"errand/pkg/messages"
)

// requests are the work of a consumer: enrollments, or messages.
type requests struct {
	items      int
	recipients int // of each message; 0 means that these are enrollments
}

func (r requests) queue() bus.Queue {
	if r.recipients > 0 {
		return bus.SendQueue
	}
	return bus.EnrollQueue
}

// calls is how many calls a request takes.
func (r requests) calls() int {
	return max(1, (r.recipients+messages.MaxBatch-1)/messages.MaxBatch)
}

// ats is how many @ these calls have: an enrollment's address; a message's recipients and, in each call, its sender.
func (r requests) ats() int { return r.calls() + r.recipients }

// prepare creates the streams again, holds the queue until start releases it, and publishes all requests but the one that start does.
func (r requests) prepare(ctx context.Context, s *stage, prefix string) error {
	if err := recreate(ctx, s.js, s.limits); err != nil {
		return err
	}
	if _, err := s.api.ask("reset"); err != nil {
		return err
	}
	if _, err := s.js.PauseConsumer(ctx, r.queue().Stream, r.queue().Name, time.Now().Add(time.Hour)); err != nil {
		return err
	}
	for n := 1; n < r.items; n++ {
		if _, err := s.js.PublishMsgAsync(r.request(prefix, n), jetstream.WithStallWait(time.Minute)); err != nil {
			return err
		}
	}
	select {
	case <-s.js.PublishAsyncComplete():
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	waiting, err := r.waiting(ctx, s)
	if err == nil && waiting != r.items-1 {
		err = fmt.Errorf("%d of %d requests were published", waiting, r.items-1)
	}
	return err
}

// request is the message of request n.
func (r requests) request(prefix string, n int) *nats.Msg {
	id := fmt.Sprintf("%s-%d", prefix, n)
	body := enrollmentNumber(id)
	if r.recipients > 0 {
		body = messageTo(id, r.recipients)
	}
	return &nats.Msg{Subject: r.queue().Filter, Header: nats.Header{nats.MsgIdHdr: {id}}, Data: []byte(body)}
}

// start waits until the contestant asks for requests, reads what was used so far, and releases the queue: what a
// process needs to start is not a request's cost.
func (r requests) start(ctx context.Context, s *stage, prefix string, contestant *process) (reading, error) {
	asked := func() (bool, error) {
		source, err := s.js.Consumer(ctx, r.queue().Stream, r.queue().Name)
		return err == nil && source.CachedInfo().NumWaiting > 0, err
	}
	if err := until(ctx, contestant, asked); err != nil {
		return reading{}, err
	}
	before, err := s.read(contestant)
	if err != nil {
		return reading{}, err
	}
	if _, err = s.js.ResumeConsumer(ctx, r.queue().Stream, r.queue().Name); err != nil {
		return before, err
	}
	_, err = s.js.PublishMsg(ctx, r.request(prefix, 0)) // it wakes the queue: waiting pulls sleep on when it is resumed
	return before, err
}

// waiting is the number of requests that are not acknowledged.
func (r requests) waiting(ctx context.Context, s *stage) (int, error) {
	stream, err := s.js.Stream(ctx, r.queue().Stream)
	if err != nil {
		return 0, err
	}
	return int(stream.CachedInfo().State.Msgs), nil
}

func (r requests) finished(ctx context.Context, s *stage) (bool, error) {
	waiting, err := r.waiting(ctx, s)
	return waiting == 0, err
}

// verify makes sure that every request ended well with one outcome, that there are no other events, and that the
// upstream saw each call once. It returns the time from the first call to the last event.
func (r requests) verify(ctx context.Context, s *stage, events int) (time.Duration, error) {
	seen, err := s.api.ask("calls")
	if err != nil {
		return 0, err
	}
	if seen.Calls != r.items*r.calls() || seen.Ats != r.items*r.ats() {
		return 0, fmt.Errorf("the upstream saw %d calls with %d addresses, want %d with %d", seen.Calls, seen.Ats, r.items*r.calls(),
			r.items*r.ats())
	}
	operation, outcome := messages.Enroll, messages.Succeeded
	if r.recipients > 0 {
		operation, outcome = messages.Send, messages.Accepted
	}
	stream, err := s.js.Stream(ctx, bus.EventsOf(operation))
	if err != nil {
		return 0, err
	}
	for tries := 0; ; tries++ { // limit acknowledges before its outcomes are stored
		info, err := stream.Info(ctx, jetstream.WithSubjectFilter(operation.Filter("*")))
		if err != nil {
			return 0, err
		}
		all, ended := 0, 0
		for subject, count := range info.State.Subjects {
			all += int(count)
			if messages.StateOf(subject) == outcome {
				ended++
			}
		}
		if ended == r.items && all == r.items*events {
			return info.State.LastTime.Sub(time.Unix(0, seen.First)), nil
		}
		if tries == 10 || !retry.Pause(ctx, 100*time.Millisecond) {
			return 0, fmt.Errorf("%d requests ended well with %d events, want %d with %d", ended, all, r.items, r.items*events)
		}
	}
}

// recreate deletes all streams of the topology and creates them again.
func recreate(ctx context.Context, js jetstream.JetStream, limits bus.Limits) error {
	for _, stream := range bus.Streams(limits) {
		if err := js.DeleteStream(ctx, stream.Name); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			return err
		}
	}
	plan, err := bus.Plan(ctx, js, limits)
	if err != nil {
		return err
	}
	return bus.Apply(ctx, plan, false, func(bus.Change) {})
}

// enrollmentNumber is a request of typical size: the fields that the document requires.
func enrollmentNumber(id string) string {
	return fmt.Sprintf(`{"portal_key":"portal","order_number":"%s","amount":100,"payer_id_type":1,"payer_id":"900101011234",`+
		`"payer_name":"Test Payer","payer_email":"payer@example.test","payer_telephone_number":"60190000000",`+
		`"frequency_mode":"MT","application_reason":"Enrollment for %[1]s"}`, id)
}

// messageTo is a message of typical size; each recipient gets it once.
func messageTo(id string, recipients int) string {
	to := make([]string, recipients)
	for i := range to {
		to[i] = fmt.Sprintf("%s-%d@example.test", id, i)
	}
	return fmt.Sprintf(`{"from":"billing@example.test","to":["%s"],"subject":"Your invoice","content":"%s"}`, strings.Join(to, `","`),
		strings.Repeat("lorem ipsum ", 40))
}
