// Package sinktest has the sink of pollers in memory, for tests in virtual time: a stream that
// forgets what is old, and processes that store in it while they lead, until they are killed.
package sinktest

import (
	"context"
	"errors"
	"sync"
	"time"

	"errand/internal/lists/sweep"
	"errand/pkg/messages"
)

// Stream keeps messages for a while. Its user holds the lock of its pollers.
type Stream[T any] struct {
	Age    time.Duration // 0: for ever
	gone   uint64        // messages that were dropped
	kept   []Message[T]
	last   time.Time // when the last one was stored
	turn   uint64    // sequence of the last change of leadership
	leader *process  // which made it
	answer map[*process]struct{}
}

// Message is an event of a poller, what somebody else stored, or, without either, a change of leadership.
type Message[T any] struct {
	At       time.Time
	Sequence uint64
	Event    *messages.Event
	Other    *T
}

// Put stores an event of a poller, or what somebody else stores.
func (s *Stream[T]) Put(event *messages.Event, other *T) (sequence uint64) {
	s.last = time.Now()
	sequence = s.First() + uint64(len(s.kept))
	s.kept = append(s.kept, Message[T]{s.last, sequence, event, other})
	return sequence
}

// First is the sequence of the first message that is kept.
func (s *Stream[T]) First() uint64 {
	for s.Age > 0 && len(s.kept) > 0 && time.Since(s.kept[0].At) > s.Age {
		s.kept, s.gone = s.kept[1:], s.gone+1
	}
	return s.gone + 1
}

// After is what is kept behind a sequence, and the sequence of the last message.
func (s *Stream[T]) After(sequence uint64) (kept []Message[T], last uint64) {
	first := s.First()
	return s.kept[max(sequence+1, first)-first:], s.gone + uint64(len(s.kept))
}

// Poller is a process that stores events in a stream.
type Poller[T any] struct {
	*Stream[T]
	Mu     *sync.Mutex
	Left   int // events that it stores before it is killed; negative: all
	Kill   func()
	Stored func(messages.Event) // called with each event

	process
}

// process is what others see of a poller.
type process struct {
	left    *int
	paused  bool
	led     bool   // it has led, and did not notice yet that another one does
	token   uint64 // of its leadership; 0 when there is none
	learned uint64 // sequence up to which it learned
}

// ErrKilled is what a process meets that was killed.
var ErrKilled = errors.New("the process was killed")

// Lead takes the leadership.
func (p *Poller[T]) Lead(context.Context) error {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	if p.lost() {
		return sweep.ErrLed
	}
	p.turn, p.leader = p.Put(nil, nil), &p.process
	p.token, p.led, p.left = p.turn, true, &p.Left
	if p.answer == nil {
		p.answer = map[*process]struct{}{}
	}
	p.answer[&p.process] = struct{}{}
	return nil
}

// Led reports what sink.Store.Led does.
func (p *Poller[T]) Led(context.Context) (bool, error) {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	if _, leads := p.answer[&p.process]; leads {
		return p.lost(), nil
	}
	for other := range p.answer {
		if *other.left != 0 && !other.paused {
			return true, nil
		}
	}
	return false, nil
}

// lost reports whether the poller led and another one took the leadership.
func (p *Poller[T]) lost() bool {
	lost := p.led && p.leader != &p.process
	if lost {
		delete(p.answer, &p.process)
		p.led, p.token = false, 0
	}
	return lost
}

// Resign lets Led of others report false, until Lead is called.
func (p *Poller[T]) Resign() {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	delete(p.answer, &p.process)
}

// Pause stops a process, as others see it, or lets it go on.
func (p *Poller[T]) Pause(paused bool) {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	p.paused = paused
}

// News returns the events but watermarks that were stored since the poller called it last.
func (p *Poller[T]) News() (events []Message[T]) {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	var news []Message[T]
	news, p.learned = p.After(p.learned)
	for _, m := range news {
		if m.Event != nil && m.Event.State != messages.Marked {
			events = append(events, m)
		}
	}
	return events
}

// Store stores events, each on condition that the poller leads.
func (p *Poller[T]) Store(events ...messages.Event) (stored int, err error) {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	for _, e := range events {
		switch {
		case p.Left == 0:
			p.Kill()
			return stored, ErrKilled
		case p.token == 0 || p.token != p.turn:
			return stored, sweep.ErrBehind
		}
		p.Left--
		p.Put(&e, nil)
		p.Stored(e)
		stored++
	}
	return stored, nil
}

// Kept returns what sink.Store.Kept does.
func (p *Poller[T]) Kept(context.Context) (time.Time, error) {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	p.First()
	oldest := time.Now().Add(-p.Age)
	switch {
	case p.Age == 0 || p.gone == 0:
		return time.Time{}, nil
	case len(p.kept) == 0 && p.last.Before(oldest):
		return p.last.Add(time.Minute), nil
	}
	return oldest.Add(max(time.Hour, p.Age/60)), nil
}

// markBody is the body of a stored mark.
type markBody struct {
	messages.Watermark
	mark sweep.Mark
}

// Mark stores a mark, on condition that the poller leads.
func (p *Poller[T]) Mark(_ context.Context, m sweep.Mark) error {
	time.Sleep(time.Millisecond) //nolint:forbidigo // models run in bubbles
	_, err := p.Store(messages.Event{State: messages.Marked, Body: &markBody{mark: m}})
	return err
}

// LastMark returns the last mark that is kept.
func (p *Poller[T]) LastMark(context.Context) (last sweep.Mark, err error) {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	kept, _ := p.After(0)
	for _, m := range kept {
		if m.Event != nil && m.Event.State == messages.Marked {
			last = m.Event.Body.(*markBody).mark
		}
	}
	return last, nil
}
