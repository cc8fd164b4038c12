package deliveries

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"

	"errand/internal/sweep"
	"errand/pkg/messages"
)

// stream keeps messages for a while.
type stream struct {
	age  time.Duration // 0: for ever
	gone uint64        // messages that were dropped
	kept []message
	last time.Time
}

// message is an event of a poller, a record of the mail consumer, or a change of leadership.
type message struct {
	at     time.Time
	event  *messages.Event
	record *Record
}

func (s *stream) put(m message) uint64 {
	m.at = time.Now()
	s.expire()
	s.kept, s.last = append(s.kept, m), m.at
	return s.end()
}

func (s *stream) expire() {
	for s.age > 0 && len(s.kept) > 0 && time.Since(s.kept[0].at) > s.age {
		s.kept, s.gone = s.kept[1:], s.gone+1
	}
}

// end is the sequence of the last message.
func (s *stream) end() uint64 { return s.gone + uint64(len(s.kept)) }

// after is what is kept behind a sequence.
func (s *stream) after(read uint64) []message {
	s.expire()
	return s.kept[max(read, s.gone)-s.gone:]
}

// streams are what pollers and the mail consumer share.
type streams struct {
	mu         sync.Mutex
	deliveries stream
	events     stream
	leader     uint64            // sequence of the last change of leadership
	last       map[string]uint64 // sequence of the last event of each request
	check      func(messages.Event)
	resolved   func(messages.Event)
}

var errKilled = errors.New("the process was killed")

// poller is the streams as one process sees them.
type poller struct {
	*streams
	token, learned  uint64
	callsRead, read uint64 // sequences up to which they were read
	left            int    // events that it stores before it is killed; negative: all
	kill            func()
	acks            time.Duration // until events are acknowledged
}

func (p *poller) Learn(context.Context) iter.Seq2[StoredEvent, error] {
	return func(yield func(StoredEvent, error) bool) {
		time.Sleep(p.acks)
		p.mu.Lock()
		if p.left == 0 {
			p.mu.Unlock()
			yield(StoredEvent{}, errKilled)
			return
		}
		p.leader = p.deliveries.put(message{})
		p.token = p.leader
		news := p.deliveries.after(p.learned)
		p.learned = p.token
		p.mu.Unlock()
		for _, m := range news {
			if m.event != nil && m.event.State != messages.Marked && !yield(storedEvent(*m.event, m.at), nil) {
				return
			}
		}
	}
}

// Kept is that of the sink.
func (p *poller) Kept(context.Context) (time.Time, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &p.deliveries
	s.expire()
	oldest := time.Now().Add(-s.age)
	switch {
	case s.age == 0 || s.gone == 0:
		return time.Time{}, nil
	case len(s.kept) == 0 && s.last.Before(oldest):
		return s.last.Add(time.Minute), nil
	}
	return oldest.Add(max(time.Hour, s.age/60)), nil
}

func (p *poller) Publish(_ context.Context, events []messages.Event) func() (int, error) {
	stored, done := 0, make(chan error, 1)
	go func() {
		for from := 0; from < len(events); {
			time.Sleep(p.acks)
			to := min(len(events), from+1+len(events)/2) // others may write in between
			n, err := p.store(events[from:to])
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

func (p *poller) store(events []messages.Event) (stored int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range events {
		switch {
		case p.left == 0:
			p.kill()
			return stored, errKilled
		case p.token != p.leader:
			return stored, sweep.ErrBehind
		}
		p.left--
		p.deliveries.put(message{event: &e})
		p.check(e)
		stored++
	}
	return stored, nil
}

func (p *poller) Watermark(context.Context) (w messages.Watermark, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deliveries.expire()
	for _, m := range p.deliveries.kept {
		if m.event != nil && m.event.State == messages.Marked {
			w = *m.event.Body.(*messages.Watermark)
		}
	}
	return w, nil
}

func (p *poller) Requests(_ context.Context, since time.Time) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		p.mu.Lock()
		calls, events := p.deliveries.after(p.callsRead), p.events.after(p.read)
		p.callsRead, p.read = p.deliveries.end(), p.events.end()
		p.mu.Unlock()
		for _, m := range calls {
			if m.record != nil && !m.at.Before(since) && !yield(*m.record, nil) {
				return
			}
		}
		for _, m := range events {
			if !m.at.Before(since) && !yield(*m.record, nil) {
				return
			}
		}
	}
}

func (p *poller) Resolve(_ context.Context, e messages.Event, over uint64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.left == 0 {
		return errKilled
	}
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
		r.Sequence = s.deliveries.put(message{record: r})
		return
	}
	r.Sequence = s.events.put(message{record: r})
	s.last[request] = r.Sequence
}

// concluded is what was last concluded about a batch.
func (s *streams) concluded(id string, number int) (b messages.ConcludedBody) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deliveries.expire()
	for _, m := range s.deliveries.kept {
		if m.event != nil && m.event.State == messages.Concluded && m.event.ID == messages.BatchID(id, number) {
			b = *m.event.Body.(*messages.ConcludedBody)
		}
	}
	return b
}
