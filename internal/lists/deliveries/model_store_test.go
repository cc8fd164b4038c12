package deliveries

import (
	"context"
	"sync"
	"time"

	"errand/internal/sim/sinktest"
	"errand/pkg/messages"
)

// streams are what pollers and the mail consumer share.
type streams struct {
	mu         sync.Mutex
	deliveries sinktest.Stream
	events     sinktest.Stream
	last       map[string]uint64 // sequence of the last event of each request
	check      func(messages.Event)
	resolved   func(messages.Event)
}

// poller is the streams as one process sees them.
type poller struct {
	sinktest.Poller
	*streams
}

// poller stores as many events before it is killed; a negative number: all.
func (s *streams) poller(left int, kill func(), acks time.Duration) *poller {
	return &poller{Poller: sinktest.Poller{Stream: &s.deliveries, Source: &s.events, Mu: &s.mu,
		Left: left, Kill: kill, Acks: acks, Stored: s.check}, streams: s}
}

func (p *poller) Resolve(_ context.Context, e messages.Event, over uint64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.Left == 0 {
		return sinktest.ErrKilled
	}
	if p.last[e.ID] == over {
		p.put(e, e.ID)
		p.resolved(e)
	}
	return nil
}

// put stores an event of the mail consumer about a request.
func (s *streams) put(e messages.Event, request string) {
	s.last[request] = s.events.Put(e)
}
