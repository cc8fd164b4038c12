package sim

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"errand/internal/bus"
	"errand/internal/oncall/inspect"
	"errand/internal/retry"
	"errand/pkg/messages"
)

// queue is the work queue of an operation and its durable consumer: what is not acknowledged comes again after AckWait.
type queue struct {
	op      messages.Operation
	ackWait time.Duration

	mu      sync.Mutex
	all     []*message
	ids     map[string]time.Time // Nats-Msg-Ids, and when they were used
	paused  time.Time            // gives out nothing until then
	changed chan struct{}        // closed when that may end a wait
}

// message is a request in its queue.
type message struct {
	sequence  uint64
	header    nats.Header
	data      []byte
	published time.Time
	delivered uint64
	due       time.Time // when it may be delivered: unless it is acknowledged, again
	taken     bool      // it is unacknowledged
	done      bool
	request   *request
	contents  int
	lane      string
}

// duplicateWindow is the stream's.
const duplicateWindow = retry.RequestsWindow

func (q *queue) stream() string { return bus.QueueOf(q.op).Stream }

// publish stores a message, unless its id was used a moment ago.
func (q *queue) publish(h nats.Header, data []byte, lane string) (m *message, duplicate bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if id := h.Get(nats.MsgIdHdr); id != "" {
		if at, ok := q.ids[id]; ok && time.Since(at) < duplicateWindow {
			return nil, true
		}
		q.ids[id] = time.Now()
	}
	m = &message{sequence: uint64(len(q.all) + 1), header: h, data: data, published: time.Now(), lane: lane}
	q.all = append(q.all, m)
	q.wake()
	return m, false
}

// pause makes the queue give out nothing for a while, resume ends that.
func (q *queue) pause(d time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.paused = time.Now().Add(d)
	q.wake()
}

func (q *queue) wake() {
	close(q.changed)
	q.changed = make(chan struct{})
}

// next delivers the first message that is due, or says when to look again, and what to wait for besides.
func (q *queue) next(lane string) (m *message, at time.Time, changed <-chan struct{}) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	at = now.Add(24 * time.Hour)
	for _, m := range q.all {
		due := m.due
		if due.Before(q.paused) {
			due = q.paused
		}
		switch {
		case m.done || m.lane != lane:
		case due.After(now):
			if due.Before(at) {
				at = due
			}
		default:
			m.delivered++
			m.taken, m.due = true, now.Add(q.ackWait)
			return m, now, nil
		}
	}
	return nil, at, q.changed
}

// waiting are the messages that are not acknowledged.
func (q *queue) waiting() (list []*message) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, m := range q.all {
		if !m.done {
			list = append(list, m)
		}
	}
	return list
}

// puller is the queue as one taker of a replica has it.
type puller struct {
	*queue
	*node

	lane string
}

func (p puller) Name() string           { return bus.QueueOf(p.op).In(p.lane).Name }
func (p puller) AckWait() time.Duration { return p.ackWait }
func (p puller) Max() int               { return 8 }
func (p puller) Close()                 {}

// slice is how long a pull waits: much longer than a real one, which asks again.
const slice = 10 * time.Minute

// Next waits for a message.
func (p puller) Next(ctx context.Context, wait time.Duration) (*bus.Request, error) {
	if wait == 0 {
		wait = slice
	}
	for end := time.Now().Add(max(wait, retry.PullExpiry)); ; {
		if err := p.before(ctx, "pull", overNATS); err != nil {
			return nil, err
		}
		m, at, changed := p.next(p.lane)
		if m != nil {
			return p.request(m), nil
		}
		if !time.Now().Before(end) {
			return nil, bus.ErrNoMessage
		}
		if at.After(end) {
			at = end
		}
		// Of those that wait for the same, one is the first.
		first := between(0, time.Millisecond, part(p.w.drawn(p.name, "pull"), 0))
		if !retry.PauseUntil(ctx, changed, time.Until(at)) || !retry.Pause(ctx, first) {
			return nil, context.Cause(ctx)
		}
	}
}

// Take returns a message that is waiting.
func (p puller) Take(ctx context.Context) (*bus.Request, error) {
	if err := p.pass(ctx, "pull", overNATS, time.Millisecond); err != nil {
		return nil, err
	}
	if m, _, _ := p.next(p.lane); m != nil {
		return p.request(m), nil
	}
	return nil, bus.ErrNoMessage
}

// Some takes up to n messages that are waiting.
func (p puller) Some(ctx context.Context, n int, take func(*bus.Request)) error {
	for i := range min(n, p.Max()) {
		r, err := p.Take(ctx)
		if err != nil {
			if i > 0 {
				return nil
			}
			return err
		}
		take(r)
	}
	return nil
}

// Waiting is what the consumer's info says.
func (p puller) Waiting(ctx context.Context) (pending, unacknowledged int, err error) {
	if err := p.pass(ctx, "info", overNATS, time.Millisecond); err != nil {
		return 0, 0, err
	}
	for _, m := range p.waiting() {
		if m.lane != p.lane {
			continue
		}
		if m.taken {
			unacknowledged++
		} else {
			pending++
		}
	}
	return pending, unacknowledged, nil
}

func (p puller) request(m *message) *bus.Request {
	return &bus.Request{Subject: p.op.RequestedIn(p.lane), Header: m.header, Data: m.data, Stream: p.stream(), Consumer: p.Name(),
		Sequence: m.sequence, Delivered: m.delivered, Published: m.published, Acker: delivered{p, m}}
}

// delivered is one delivery of a message. What its worker says may be lost, and counts although another worker may have the request by now.
type delivered struct {
	puller
	*message
}

func (d delivered) Ack(...nats.AckOpt) error {
	return d.say("ack", func() { d.done = true })
}

func (d delivered) NakWithDelay(wait time.Duration, _ ...nats.AckOpt) error {
	return d.say("nak", func() { d.due, d.taken = time.Now().Add(wait), false })
}

func (d delivered) InProgress(...nats.AckOpt) error {
	return d.say("in progress", func() {
		if d.taken {
			d.due = time.Now().Add(d.ackWait)
		}
	})
}

// say sends an answer, and waits for nothing: it may come later, after a stop or a new connection, or be lost.
func (d delivered) say(what string, do func()) error {
	if d.counts("before "+what, false); d.dead() {
		return errKilled
	}
	h := d.w.drawn(d.name, what+strconv.FormatUint(d.sequence, 10))
	wait, cut := d.absent()
	if lost := d.w.is(lostAcks, part(h, 0)) || cut && part(h, 1) < 0.5; !lost {
		time.AfterFunc(wait, func() {
			d.queue.mu.Lock()
			defer d.queue.mu.Unlock()
			if !d.done {
				do()
			}
			d.wake()
		})
	}
	d.counts("after "+what, true)
	return nil
}

// schedules keep requests until their time, and move them into their queue then.
type schedules struct{ *node }

// Schedule keeps a request. The servers' clock may be ahead, and a mover may be killed after it has published and before it acknowledges.
func (s schedules) Schedule(ctx context.Context, r *bus.Request, kept bus.Schedule) error {
	ctx, cancel := context.WithTimeout(ctx, retry.Answer)
	defer cancel()
	if err := s.before(ctx, "schedule", overNATS); err != nil {
		return err
	}
	m, of := kept.Message(r), r.Acker.(delivered).message
	w := s.w
	h := w.drawn(s.name, "schedule "+kept.ID)
	w.mu.Lock()
	entry := &scheduled{op: kept.Operation, id: kept.ID, of: of,
		due: bus.Due(strings.Replace(m.Subject, ".at.", ".due.", 1), m.Header, m.Data)}
	w.scheduled[m.Subject] = entry
	w.mu.Unlock()
	at := time.Until(kept.At) + between(-2*time.Second, 4*time.Second, part(h, 0))
	time.AfterFunc(max(0, at), func() {
		if w.move(m.Subject, entry) && part(h, 1) < 0.2 {
			w.mu.Lock()
			of.request.redriven[m.Header.Get("traceparent")] = true // there are two of it
			w.mu.Unlock()
			time.AfterFunc(time.Minute, func() { w.publishDue(entry) })
		}
	})
	return s.after(ctx, "schedule", overNATS)
}

// scheduled is a request that waits for its time.
type scheduled struct {
	op  messages.Operation
	id  string
	due *nats.Msg
	of  *message
}

// move puts a request into its queue, unless it was released or scheduled again.
func (w *world) move(subject string, s *scheduled) bool {
	w.mu.Lock()
	kept := w.scheduled[subject] == s
	if kept {
		delete(w.scheduled, subject)
	}
	w.mu.Unlock()
	if kept && w.ctx.Err() == nil {
		w.publishDue(s)
	}
	return kept
}

func (w *world) publishDue(s *scheduled) {
	q := w.queues[s.op]
	m, _ := q.publish(s.due.Header, s.due.Data, messages.ParseSubject(s.due.Subject).Lane)
	q.mu.Lock()
	m.request, m.contents = s.of.request, s.of.contents
	q.mu.Unlock()
	w.tell("%s is due (message %d)", s.id, m.sequence)
}

// letters is the stream DEAD_LETTERS.
type letters struct {
	*node

	of *letterBox
}

type letterBox struct {
	mu  sync.Mutex
	all []*letter
	ids map[string]bool
}

type letter struct {
	inspect.DeadLetter
	of    *message
	final uint64
}

var errFull = errors.New("maximum bytes exceeded")

// StoreDeadLetter stores a request's message. It is tried once, as bus.Publisher does.
func (l letters) StoreDeadLetter(ctx context.Context, r *bus.Request, why bus.DeadLetter) error {
	ctx, cancel := context.WithTimeout(ctx, retry.Answer)
	defer cancel()
	if err := l.before(ctx, "dead letter", overNATS); err != nil {
		return err
	}
	if !retry.Pause(ctx, time.Millisecond) {
		return context.Cause(ctx)
	}
	if l.w.full(lettersFull) {
		return errFull
	}
	id := bus.DeadLetterID(why.Operation, why.RequestID, why.Final)
	l.of.mu.Lock()
	if !l.of.ids[id] {
		l.of.ids[id] = true
		h := nats.Header{nats.MsgIdHdr: {id}}
		if t := r.Header.Get("traceparent"); t != "" {
			h.Set("traceparent", t)
		}
		l.of.all = append(l.of.all, &letter{final: why.Final, of: r.Acker.(delivered).message,
			DeadLetter: inspect.DeadLetter{Sequence: uint64(len(l.of.all) + 1), Time: messages.Time{Time: time.Now()},
				RequestID: why.RequestID, Operation: why.Operation, Reason: why.Reason,
				Event: inspect.Event{Message: bus.Message{Subject: "dead." + r.Subject, Data: r.Data, Header: h}}}})
	}
	l.of.mu.Unlock()
	return l.after(ctx, "dead letter", overNATS)
}

// newest is the last dead letter of a request; nil if there is no dead letter.
func (b *letterBox) newest(id string) *letter {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range slices.Backward(b.all) {
		if l.RequestID == id {
			return l
		}
	}
	return nil
}
