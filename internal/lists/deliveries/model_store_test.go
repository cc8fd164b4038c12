package deliveries

import (
	"context"
	"iter"
	"slices"
	"sync"
	"time"

	"errand/internal/lists/sink/sinktest"
	"errand/pkg/messages"
)

// streams are what pollers and the mail consumer share.
type streams struct {
	mu         sync.Mutex
	deliveries sinktest.Stream[Record]
	events     sinktest.Stream[Record]
	last       map[string]uint64 // sequence of the last event of each request
	check      func(messages.Event)
	resolved   func(messages.Event)
}

// poller is the streams as one process sees them.
type poller struct {
	sinktest.Poller[Record]
	*streams
	callsRead, read uint64        // sequences up to which they were read
	acks            time.Duration // until events are acknowledged
}

// poller stores as many events before it is killed; a negative number: all.
func (s *streams) poller(left int, kill func(), acks time.Duration) *poller {
	return &poller{Poller: sinktest.Poller[Record]{Stream: &s.deliveries, Mu: &s.mu, Left: left, Kill: kill, Stored: s.check}, streams: s,
		acks: acks}
}

// killed reports whether the process was killed.
func (p *poller) killed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.Left == 0
}

func (p *poller) Lead(ctx context.Context) error {
	time.Sleep(p.acks)
	if p.killed() {
		return sinktest.ErrKilled
	}
	return p.Poller.Lead(ctx)
}

func (p *poller) Learn(context.Context) iter.Seq2[StoredEvent, error] {
	return func(yield func(StoredEvent, error) bool) {
		for _, m := range p.News() {
			if !yield(storedEvent(*m.Event, m.At), nil) {
				return
			}
		}
	}
}

func (p *poller) Publish(_ context.Context, events []messages.Event) func() (int, error) {
	stored, done := 0, make(chan error, 1)
	go func() {
		for from := 0; from < len(events); {
			time.Sleep(p.acks)
			to := min(len(events), from+1+len(events)/2) // others may write in between
			n, err := p.Store(events[from:to]...)
			if stored += n; err != nil {
				done <- err
				return
			}
			from = to
		}
		done <- nil
	}()
	return func() (int, error) {
		err := <-done
		return stored, err
	}
}

func (p *poller) Requests(_ context.Context, since time.Time) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		var calls, events []sinktest.Message[Record]
		p.mu.Lock()
		calls, p.callsRead = p.deliveries.After(p.callsRead)
		events, p.read = p.events.After(p.read)
		p.mu.Unlock()
		for _, m := range slices.Concat(calls, events) {
			if m.Other == nil || m.At.Before(since) {
				continue
			}
			if !yield(Record{m.Other.Subject, m.Sequence, m.Other.Body}, nil) {
				return
			}
		}
	}
}

func (p *poller) Resolve(_ context.Context, e messages.Event, over uint64) error {
	if p.killed() {
		return sinktest.ErrKilled
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last[e.ID] == over {
		p.put(e, e.ID)
		p.resolved(e)
	}
	return nil
}

// put stores an event of the mail consumer about a request.
func (s *streams) put(e messages.Event, request string) {
	data, err := e.Encode()
	if err != nil {
		panic(err)
	}
	r := &Record{Subject: e.Subject(), Body: data}
	if e.Operation == messages.Log {
		s.deliveries.Put(nil, r)
	} else {
		s.last[request] = s.events.Put(nil, r)
	}
}
