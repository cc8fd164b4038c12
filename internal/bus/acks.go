package bus

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/retry"
)

// acks brings the server's answers to the writes that wait. It alone decides what was stored and when silence is final.
//
//	take, Begin ─► Send, each with a reply subject ─► receive, tick or lost ─► Wait
//
// The server works less for a reply subject that it knows, so a single write that was stored leaves its subject to a
// later one to the same stream. No answer may be taken for a later write's:
//
//   - A subject whose answer did not come, or was a refusal, is never used again: the answer may come late. Silence also
//     retires the stream's free subjects: a stream that was made again, or restored, begins with lower sequences, and
//     each of them would lose a write to that.
//   - In a cluster the old leader and the new one may both say that a write was stored. A later write has a higher
//     sequence than every answer before it on its subject.
//
// Writes that begin together have subjects of their own. There a sequence that was passed already shows an older copy.
type acks struct {
	nc     *nats.Conn
	prefix string // of the reply subjects
	id     string // begins the ids of atomic batches

	mu       sync.Mutex
	tokens   uint64               // so far
	known    map[string]*Writes   // by token
	free     map[string][]*Writes // by stream
	underWay int                  // messages that are waited for
	timer    *time.Timer          // ticks while one is
	ticking  bool
}

// Writes are messages on their way to one stream, and one wait for all of them. They belong to one goroutine.
type Writes struct {
	acks     *acks
	stream   string
	token    string
	subject  string // of the only answer, or the beginning of each
	messages int
	atomic   bool // all are stored or none, and the server answers once
	reusable bool
	sent     int
	done     chan struct{} // has room for one

	// Under acks.mu.
	results []error // by answer; nil means stored
	left    int     // answers that did not come yet
	refusal error   // the first answer that a message is not stored
	ticks   int     // until silence is final
	ack     Ack     // the last one
	after   uint64  // they are stored behind this sequence
	highest *uint64 // the highest sequence known to be stored, which answers raise
}

const (
	// ticks is in how many steps a write without an answer is given up.
	ticks = 10
	// writeTime is what each of many writes may take beyond retry.Answer.
	writeTime = 2 * time.Millisecond
)

// errUnanswered is the result of a write until there is an answer.
var errUnanswered = fmt.Errorf("%w yet", ErrNoAck)

func newAcks(prefix string) *acks {
	a := &acks{prefix: prefix, id: rand.Text()[:13] + "-", known: map[string]*Writes{}, free: map[string][]*Writes{}}
	a.timer = time.AfterFunc(time.Hour, a.tick)
	a.timer.Stop()
	return a
}

// listen subscribes to the answers; they stop with nc.
func (a *acks) listen(nc *nats.Conn) error {
	a.nc = nc
	sub, err := nc.Subscribe(a.prefix+">", a.receive)
	if err != nil {
		return fmt.Errorf("nats: subscribe to acknowledgements: %w", err)
	}
	_ = sub.SetPendingLimits(-1, -1) // fails only of one that has ended
	status := nc.StatusChanged(nats.RECONNECTING, nats.CLOSED)
	go func() { // ends with the connection
		for s := range status {
			a.lost()
			if s == nats.CLOSED {
				return
			}
		}
	}()
	return nil
}

// take begins a single write. A reusable one may have a subject that was used before.
func (a *acks) take(stream string, reusable bool) *Writes {
	a.mu.Lock()
	defer a.mu.Unlock()
	if free := a.free[stream]; reusable && len(free) > 0 {
		w := free[len(free)-1]
		a.free[stream] = free[:len(free)-1]
		w.results[0], w.left, w.sent, w.ticks, w.after = errUnanswered, 1, 0, ticks, *w.highest
		a.wait(1)
		return w
	}
	w := a.add(&Writes{stream: stream, messages: 1, reusable: reusable, highest: new(uint64)}, 1)
	w.ticks = ticks
	return w
}

// Begin begins writes to a stream, which are sent without waiting for one another. If atomic, all are stored or none, and the server
// answers once; they are at most MaxAtomic then. The answers raise highest, the sequence known to be stored; its owner reads it only
// while none of its writes are under way.
func (a *acks) Begin(stream string, messages int, atomic bool, highest *uint64) *Writes {
	a.mu.Lock()
	defer a.mu.Unlock()
	answers := messages
	if atomic {
		answers = 1
	}
	w := a.add(&Writes{stream: stream, messages: messages, atomic: atomic, highest: highest, after: *highest}, answers)
	// The server answers in order, so the writes before take their time too.
	w.ticks = ticks + int(time.Duration(a.underWay)*writeTime*ticks/retry.Answer)
	return w
}

func (a *acks) add(w *Writes, answers int) *Writes {
	a.tokens++
	w.acks, w.token, w.done = a, strconv.FormatUint(a.tokens, 36), make(chan struct{}, 1)
	w.subject = a.prefix + w.token
	w.results, w.left = slices.Repeat([]error{errUnanswered}, answers), answers
	a.known[w.token] = w
	a.wait(w.messages)
	return w
}

func (a *acks) wait(messages int) {
	a.underWay += messages
	if !a.ticking {
		a.ticking = true
		a.timer.Reset(retry.Answer / ticks)
	}
}

// Send sends the next message. After an error, which Wait returns too, no other may follow.
func (w *Writes) Send(m *nats.Msg) error {
	switch {
	case w.atomic:
		w.inBatch(m)
	case w.messages == 1:
		m.Reply = w.subject
	default:
		m.Reply = w.subject + "." + strconv.FormatUint(uint64(w.sent), 36)
	}
	if err := w.acks.nc.PublishMsg(m); err != nil {
		w.Abort(err)
		return err
	}
	w.sent++
	return nil
}

// inBatch makes a message a part of an atomic batch, which the last message commits.
func (w *Writes) inBatch(m *nats.Msg) {
	m.Reply = ""
	m.Header["Nats-Batch-Id"] = []string{w.acks.id + w.token}
	m.Header["Nats-Batch-Sequence"] = []string{strconv.Itoa(w.sent + 1)}
	if w.sent+1 == w.messages {
		m.Header["Nats-Batch-Commit"] = []string{"1"}
		m.Reply = w.subject
	}
}

// Abort ends the sending with the reason why the next message cannot be sent.
func (w *Writes) Abort(why error) {
	w.acks.mu.Lock()
	defer w.acks.mu.Unlock()
	from := w.sent
	if w.atomic {
		from = 0
	}
	w.end(from, why)
}

// Wait returns how many messages from the first are stored, where the last one is if all are, and why the next one is not. It is called
// once. ErrNoAck: it is not known whether that one is. ErrSetBack: it is, in an older copy of the stream.
func (w *Writes) Wait(ctx context.Context) (stored int, last Ack, err error) {
	select {
	case <-w.done:
	case <-ctx.Done():
	}
	a := w.acks
	a.mu.Lock()
	defer a.mu.Unlock()
	if w.left > 0 && w.refusal == nil {
		w.end(0, fmt.Errorf("%w: %w", ErrNoAck, context.Cause(ctx)))
	}
	select {
	case <-w.done: // it ended together with ctx
	default:
	}
	if stored, err = w.outcome(); err == nil {
		last = w.ack
	}
	a.underWay -= w.messages
	if errors.Is(err, ErrNoAck) {
		a.forget(w.stream)
	}
	if err == nil && w.reusable {
		a.free[w.stream] = append(a.free[w.stream], w)
	} else {
		delete(a.known, w.token)
	}
	return stored, last, err
}

// outcome is how many messages from the first are stored, and the result of the next.
func (w *Writes) outcome() (stored int, err error) {
	for i, err := range w.results {
		switch {
		case err == nil:
		case errors.Is(err, ErrNoAck) && w.refusal != nil: // in a cluster a refusal may overtake
			return i, w.refusal
		default:
			return i, err
		}
	}
	return w.messages, nil
}

// forget retires the free subjects of a stream.
func (a *acks) forget(stream string) {
	for _, w := range a.free[stream] {
		delete(a.known, w.token)
	}
	delete(a.free, stream)
}

// receive reads what came on a reply subject.
func (a *acks) receive(m *nats.Msg) {
	token, number, several := strings.Cut(m.Subject[len(a.prefix):], ".")
	i := uint64(0)
	if several {
		var err error
		if i, err = strconv.ParseUint(number, 36, 64); err != nil {
			return
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	w := a.known[token]
	if w == nil || several != (len(w.results) > 1) || i >= uint64(len(w.results)) || !errors.Is(w.results[i], errUnanswered) {
		return
	}
	ack, err := readAck(m, w.stream)
	switch {
	case err != nil:
	case ack.Sequence > w.after:
		w.ack, *w.highest = ack, max(*w.highest, ack.Sequence)
	case w.reusable:
		return // the answer to an earlier write, again
	default:
		err = ErrSetBack
	}
	w.results[i] = err
	w.left--
	if _, refused := errors.AsType[*jetstream.APIError](err); refused && w.refusal == nil {
		w.refusal = err
	}
	w.wake()
}

// end is the result of the answers from one on that did not come.
func (w *Writes) end(from int, err error) {
	if w.left == 0 {
		return
	}
	for i := from; i < len(w.results); i++ {
		if errors.Is(w.results[i], errUnanswered) {
			w.results[i] = err
			w.left--
		}
	}
	w.wake()
}

// wake ends the wait when there is nothing to wait for: what became of messages behind a refused one must be learned anyhow.
func (w *Writes) wake() {
	if w.left > 0 && w.refusal == nil {
		return
	}
	select {
	case w.done <- struct{}{}:
	default:
	}
}

// tick gives up the writes that had no answer in time.
func (a *acks) tick() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ticking = false
	for _, w := range a.known {
		if w.left == 0 {
			continue
		}
		if w.ticks--; w.ticks < 0 {
			w.end(0, ErrNoAck)
		} else {
			a.ticking = true
		}
	}
	if a.ticking {
		a.timer.Reset(retry.Answer / ticks)
	}
}

// lost ends every wait: answers from before the break never come, and the next server may lack some of what was stored.
func (a *acks) lost() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for stream := range a.free {
		a.forget(stream)
	}
	for _, w := range a.known {
		w.end(0, errBroken)
	}
}
