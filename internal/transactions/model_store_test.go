package transactions

import (
	"context"
	"encoding/hex"
	"errors"
	"iter"
	"sync"
	"time"

	"errand/internal/sweep"
	"errand/pkg/messages"
)

// stream has the events of enrollments and of the list, and keeps them for a while.
type stream struct {
	mu        sync.Mutex    // guards the service too
	age       time.Duration // 0: for ever
	gone      uint64        // events that were dropped
	kept      []stored
	last      time.Time            // when the last one was stored
	leader    uint64               // sequence of the last change of leadership
	matched   func(messages.Event) // called when an event is about to be stored
	published func(messages.Event) // called when it is
}

// stored is a started event, one of the list, or, without either, a change of leadership.
type stored struct {
	at      time.Time
	started *Started
	event   *messages.Event
}

// put stores an event. The caller holds the lock.
func (s *stream) put(m stored) (sequence uint64) {
	m.at = time.Now()
	s.expire()
	s.kept, s.last = append(s.kept, m), m.at
	sequence = s.gone + uint64(len(s.kept))
	if m.started != nil {
		m.started.Sequence, m.started.At = sequence, m.at
	}
	return sequence
}

func (s *stream) expire() {
	for s.age > 0 && len(s.kept) > 0 && time.Since(s.kept[0].at) > s.age {
		s.kept, s.gone = s.kept[1:], s.gone+1
	}
}

// after is what is kept behind a sequence. The caller holds the lock.
func (s *stream) after(read uint64) []stored {
	s.expire()
	return s.kept[max(read, s.gone)-s.gone:]
}

var errKilled = errors.New("the process was killed")

// poller is the stream as one process sees it.
type poller struct {
	*stream
	token, learned, read uint64
	left                 int // events that it stores before it is killed; negative: all
	kill                 context.CancelFunc
}

func (p *poller) Learn(context.Context) iter.Seq2[Learned, error] {
	return func(yield func(Learned, error) bool) {
		time.Sleep(5 * time.Millisecond)
		p.mu.Lock()
		p.leader = p.put(stored{})
		news := p.after(p.learned)
		p.token, p.learned = p.leader, p.leader
		p.mu.Unlock()
		for _, m := range news {
			if m.event == nil || m.event.State == messages.Marked {
				continue
			}
			if !yield(Learned{idOf(*m.event), m.event.State, m.at}, nil) {
				return
			}
		}
	}
}

// Kept is that of the sink.
func (p *poller) Kept(context.Context) (time.Time, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expire()
	oldest := time.Now().Add(-p.age)
	switch {
	case p.age == 0 || p.gone == 0:
		return time.Time{}, nil
	case len(p.kept) == 0 && p.last.Before(oldest):
		return p.last.Add(time.Minute), nil
	}
	return oldest.Add(max(time.Hour, p.age/60)), nil
}

// Publish stores events while the caller goes on, each on condition that p leads.
func (p *poller) Publish(_ context.Context, events []messages.Event) func() (int, error) {
	n, done := 0, make(chan error, 1)
	for _, e := range events {
		p.mu.Lock()
		p.matched(e)
		p.mu.Unlock()
	}
	go func() {
		for i := range events {
			time.Sleep(time.Millisecond) // others may write in between
			if err := p.store(&events[i]); err != nil {
				done <- err
				return
			}
			n++
		}
		done <- nil
	}()
	return func() (int, error) { err := <-done; return n, err }
}

func (p *poller) store(e *messages.Event) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.token != p.leader {
		return sweep.ErrBehind
	}
	if p.left == 0 {
		p.kill()
		return errKilled
	}
	p.left--
	p.put(stored{event: e})
	p.published(*e)
	return nil
}

func (p *poller) Watermark(context.Context) (w messages.Watermark, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expire()
	for _, m := range p.kept {
		if m.event != nil && m.event.State == messages.Marked {
			w = *m.event.Body.(*messages.Watermark)
		}
	}
	return w, nil
}

func (p *poller) Started(context.Context) iter.Seq2[Started, error] {
	return func(yield func(Started, error) bool) {
		p.mu.Lock()
		news := p.after(p.read)
		p.read = p.gone + uint64(len(p.kept))
		p.mu.Unlock()
		for _, m := range news {
			if m.started != nil && !yield(*m.started, nil) {
				return
			}
		}
	}
}

func (p *poller) Request(_ context.Context, sequence uint64) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.expire(); sequence <= p.gone {
		return "", nil
	}
	return p.kept[sequence-p.gone-1].started.Request, nil
}

func (p *poller) First(context.Context) (uint64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expire()
	return p.gone + 1, nil
}

func idOf(e messages.Event) (id sweep.ID) {
	if n, err := hex.Decode(id[:], []byte(e.Body.(*messages.TransactionBody).EventID)); err != nil || n != len(id) {
		panic(e.Body)
	}
	return id
}
