package transactions

import (
	"context"
	"sync"
	"time"

	"errand/internal/sim/sinktest"
	"errand/pkg/messages"
)

// stream has the events of enrollments and of the list, and keeps them for a while.
type stream struct {
	sinktest.Stream
	mu        sync.Mutex           // guards the service too
	matched   func(messages.Event) // called when an event is about to be stored
	published func(messages.Event) // called when it is
}

// poller is the stream as one process sees it.
type poller struct {
	sinktest.Poller
	matched func(messages.Event)
}

// poller stores as many events before it is killed; a negative number: all.
func (s *stream) poller(left int, kill func()) *poller {
	return &poller{sinktest.Poller{Stream: &s.Stream, Source: &s.Stream, Mu: &s.mu, Left: left, Kill: kill,
		Acks: 5 * time.Millisecond, Stored: s.published}, s.matched}
}

func (p *poller) Publish(ctx context.Context, events []messages.Event) func() (int, error) {
	p.Mu.Lock()
	for _, e := range events {
		p.matched(e)
	}
	p.Mu.Unlock()
	return p.Poller.Publish(ctx, events)
}

// announces stores that a call is made for a request, or that it failed without effect.
func (s *stream) announces(request, order string) {
	s.Put(messages.Event{Operation: messages.Enroll, State: messages.Started, ID: request, Body: &messages.EnrollStarted{OrderNumber: order}})
}

func (s *stream) fails(request, order string) {
	s.Put(messages.Event{Operation: messages.Enroll, State: messages.Failed, ID: request, Body: &messages.FailedBody{OrderNumber: order}})
}
