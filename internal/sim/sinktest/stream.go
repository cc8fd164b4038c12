// Package sinktest has the sink of pollers in memory, for tests in virtual time: a stream that
// forgets what is old, and processes that store in it while they lead, until they are killed.
package sinktest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"errand/internal/history"
	"errand/internal/lists"
	"errand/internal/lists/sweep"
	"errand/pkg/messages"
)

// Stream keeps messages for a while. Its user holds the lock of its pollers.
type Stream struct {
	Age    time.Duration // 0: for ever
	gone   uint64        // messages that were dropped
	kept   []Message
	last   time.Time // when the last one was stored
	turn   uint64    // sequence of the last change of leadership
	leader *process  // which made it
	answer map[*process]struct{}
}

// Message is an event of a poller, what somebody else stored, or, without a subject and an event, a change of leadership.
type Message struct {
	history.Entry
	Event *messages.Event
}

// Put stores what somebody else stores.
func (s *Stream) Put(e messages.Event) (sequence uint64) {
	body, err := e.Encode()
	if err != nil {
		panic(err)
	}
	return s.put(Message{Entry: history.Entry{Subject: e.Subject(), Body: body}})
}

func (s *Stream) put(m Message) (sequence uint64) {
	s.last = time.Now()
	m.At, m.Sequence = s.last, s.first()+uint64(len(s.kept))
	s.kept = append(s.kept, m)
	return m.Sequence
}

// first is the sequence of the first message that is kept.
func (s *Stream) first() uint64 {
	for s.Age > 0 && len(s.kept) > 0 && time.Since(s.kept[0].At) > s.Age {
		s.kept, s.gone = s.kept[1:], s.gone+1
	}
	return s.gone + 1
}

// After is what is kept behind a sequence, and the sequence of the last message.
func (s *Stream) After(sequence uint64) (kept []Message, last uint64) {
	first := s.first()
	return s.kept[max(sequence+1, first)-first:], s.gone + uint64(len(s.kept))
}

// Poller is a process that stores events in a stream, as a lists.Store.
type Poller struct {
	*Stream
	Source *Stream // of what others store
	Mu     *sync.Mutex
	Left   int // events that it stores before it is killed; negative: all
	Kill   func()
	Acks   time.Duration        // until some events are acknowledged
	Stored func(messages.Event) // called with each event

	read uint64 // sequence up to which the source was read
	process
}

// process is what others see of a poller.
type process struct {
	left    *int
	paused  bool
	token   uint64 // of its leadership; 0 when there is none
	learned uint64 // sequence up to which it learned
}

// ErrKilled is what a process meets that was killed.
var ErrKilled = errors.New("the process was killed")

// Lead takes the leadership.
func (p *Poller) Lead(context.Context) error {
	time.Sleep(p.Acks) //nolint:forbidigo // models run in bubbles
	p.Mu.Lock()
	defer p.Mu.Unlock()
	switch {
	case p.Left == 0:
		return ErrKilled
	case p.lost():
		return sweep.ErrLed
	}
	p.turn, p.leader = p.put(Message{}), &p.process
	p.token, p.left = p.turn, &p.Left
	if p.answer == nil {
		p.answer = map[*process]struct{}{}
	}
	p.answer[&p.process] = struct{}{}
	return nil
}

// Led reports what sink.Store.Led does.
func (p *Poller) Led(context.Context) (bool, error) {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	if p.answers() {
		return p.lost(), nil
	}
	for other := range p.answer {
		if *other.left != 0 && !other.paused {
			return true, nil
		}
	}
	return false, nil
}

// answers reports whether the poller leads, as far as it knows.
func (p *Poller) answers() bool {
	_, answers := p.answer[&p.process]
	return answers
}

// lost reports whether the poller led and another one took the leadership.
func (p *Poller) lost() bool {
	lost := p.answers() && p.leader != &p.process
	if lost {
		delete(p.answer, &p.process)
		p.token = 0
	}
	return lost
}

// Resign lets Led of others report false, until Lead is called.
func (p *Poller) Resign() {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	delete(p.answer, &p.process)
}

// Pause stops a process, as others see it, or lets it go on.
func (p *Poller) Pause(paused bool) {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	p.paused = paused
}

// Learn calls take with what is known of the events but watermarks that were stored since the poller learned last.
func (p *Poller) Learn(_ context.Context, take func(lists.Stored) error) error {
	for _, m := range p.unread(p.Stream, &p.learned) {
		if m.Event != nil && m.Event.State != messages.Marked {
			if err := take(lists.StoredAt(*m.Event, m.At)); err != nil {
				return err
			}
		}
	}
	return nil
}

// Reset does nothing: no model restores a copy of the stream.
func (p *Poller) Reset() {}

// Requests calls take with what others have stored since a time and the poller has not read.
func (p *Poller) Requests(_ context.Context, since time.Time, take func(history.Entry) error) error {
	for _, m := range p.unread(p.Source, &p.read) {
		if m.Event == nil && m.Subject != "" && !m.At.Before(since) {
			if err := take(m.Entry); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *Poller) unread(s *Stream, read *uint64) (news []Message) {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	news, *read = s.After(*read)
	return news
}

// Publish stores events while the caller goes on, each on condition that the poller leads. Others may write in between.
func (p *Poller) Publish(_ context.Context, events []messages.Event) func() (int, error) {
	stored, done := 0, make(chan error, 1)
	go func() {
		for some := range slices.Chunk(events, 1+len(events)/8) {
			time.Sleep(p.Acks) //nolint:forbidigo // models run in bubbles
			n, err := p.store(some...)
			if stored += n; err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	return func() (int, error) {
		err := <-done
		return stored, err
	}
}

// store stores events, each on condition that the poller leads.
func (p *Poller) store(events ...messages.Event) (stored int, err error) {
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
		p.put(Message{Event: &e})
		p.Stored(e)
		stored++
	}
	return stored, nil
}

// Kept returns what sink.Store.Kept does.
func (p *Poller) Kept(context.Context) (time.Time, error) {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	p.first()
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
func (p *Poller) Mark(_ context.Context, m sweep.Mark) error {
	time.Sleep(time.Millisecond) //nolint:forbidigo // models run in bubbles
	_, err := p.store(messages.Event{State: messages.Marked, Body: &markBody{mark: m}})
	return err
}

// LastMark returns the last mark that is kept.
func (p *Poller) LastMark(context.Context) (last sweep.Mark, err error) {
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
