package transactions

import (
	"context"
	"encoding/hex"
	"iter"
	"sync"
	"time"

	"errand/internal/lists/sink/sinktest"
	"errand/internal/lists/sweep"
	"errand/pkg/messages"
)

// stream has the events of enrollments and of the list, and keeps them for a while.
type stream struct {
	sinktest.Stream[Candidate]
	mu        sync.Mutex           // guards the service too
	matched   func(messages.Event) // called when an event is about to be stored
	published func(messages.Event) // called when it is
}

// poller is the stream as one process sees it.
type poller struct {
	sinktest.Poller[Candidate]
	matched func(messages.Event)
	read    uint64
}

// poller stores as many events before it is killed; a negative number: all.
func (s *stream) poller(left int, kill func()) *poller {
	return &poller{Poller: sinktest.Poller[Candidate]{Stream: &s.Stream, Mu: &s.mu, Left: left, Kill: kill, Stored: s.published},
		matched: s.matched}
}

func (p *poller) Lead(ctx context.Context) error {
	time.Sleep(5 * time.Millisecond)
	return p.Poller.Lead(ctx)
}

func (p *poller) Learn(context.Context) iter.Seq2[sweep.Stored, error] {
	return func(yield func(sweep.Stored, error) bool) {
		for _, m := range p.News() {
			if !yield(sweep.Stored{ID: idOf(*m.Event), At: m.At}, nil) {
				return
			}
		}
	}
}

// Publish stores events while the caller goes on, each on condition that p leads.
func (p *poller) Publish(_ context.Context, events []messages.Event) func() (int, error) {
	n, done := 0, make(chan error, 1)
	for _, e := range events {
		p.Mu.Lock()
		p.matched(e)
		p.Mu.Unlock()
	}
	go func() {
		for _, e := range events {
			time.Sleep(time.Millisecond) // others may write in between
			if _, err := p.Store(e); err != nil {
				done <- err
				return
			}
			n++
		}
		done <- nil
	}()
	return func() (int, error) { err := <-done; return n, err }
}

func (p *poller) Candidates(context.Context) iter.Seq2[Candidate, error] {
	return func(yield func(Candidate, error) bool) {
		var news []sinktest.Message[Candidate]
		p.Mu.Lock()
		news, p.read = p.After(p.read)
		p.Mu.Unlock()
		for _, m := range news {
			if m.Other == nil {
				continue
			}
			c := *m.Other
			c.Sequence, c.At = m.Sequence, m.At
			if !yield(c, nil) {
				return
			}
		}
	}
}

func (p *poller) Request(_ context.Context, sequence uint64) (string, error) {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	kept, _ := p.After(sequence - 1)
	if len(kept) == 0 || kept[0].Sequence != sequence {
		return "", nil
	}
	return kept[0].Other.Request, nil
}

func (p *poller) First(context.Context) (uint64, error) {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	return p.Stream.First(), nil
}

func idOf(e messages.Event) (id sweep.ID) {
	if n, err := hex.Decode(id[:], []byte(e.Body.(*messages.TransactionBody).EventID)); err != nil || n != len(id) {
		panic(e.Body)
	}
	return id
}
