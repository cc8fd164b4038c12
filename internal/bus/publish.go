package bus

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"

	"errand/internal/retry"
)

// Publisher stores messages in JetStream. Any number of goroutines may wait for their acknowledgements at once: they
// share one subscription and one flush of the connection, which is what makes a waited write cheap.
type Publisher struct {
	nc   *nats.Conn
	acks *acks

	mu     sync.Mutex
	faults map[string]error // of the streams that did not store, until they do
}

// NewPublisher listens for acknowledgements on nc; they stop with nc.
func NewPublisher(nc *nats.Conn) (*Publisher, error) {
	p := &Publisher{nc: nc, acks: newAcks(nc.NewInbox() + "."), faults: map[string]error{}}
	return p, p.acks.listen(nc)
}

// Publish stores m once and waits for the answer. Errors: ErrNoAck, the server's *jetstream.APIError, or the connection's.
func (p *Publisher) Publish(ctx context.Context, m *nats.Msg) (Ack, error) {
	stream := streamOf(m.Subject)
	a, err := p.publish(ctx, stream, m)
	// Otherwise the caller left before the answer, or the fault is the message's.
	if err == nil || ctx.Err() == nil && !IsFinal(err) {
		p.note(stream, err)
	}
	return a, err
}

func (p *Publisher) publish(ctx context.Context, stream string, m *nats.Msg) (Ack, error) {
	// A message with an id may be answered with the sequence at which it was stored long before.
	w := p.acks.take(stream, m.Header[nats.MsgIdHdr] == nil)
	_ = w.Send(m) // wait returns its error
	_, a, err := w.wait(ctx)
	return a, err
}

// Begin begins n writes to a stream, which are sent without waiting for one another. The answers raise highest,
// the sequence known to be stored; its owner reads it only while none of its writes are under way.
func (p *Publisher) Begin(stream string, n int, highest *uint64) *Writes {
	return p.acks.begin(stream, n, false, highest)
}

// BeginAtomic is Begin for messages of which all are stored or none; n is at most MaxAtomic.
func (p *Publisher) BeginAtomic(stream string, n int, highest *uint64) *Writes {
	return p.acks.begin(stream, n, true, highest)
}

// MaxAtomic is the server's limit of the messages in one atomic batch.
const MaxAtomic = 1000

// note records why a stream did not store, until it does. A conflict shows only that it answers.
func (p *Publisher) note(stream string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case err == nil, IsConflict(err) && errors.Is(p.faults[stream], ErrNoAck):
		delete(p.faults, stream)
	case !IsConflict(err):
		p.faults[stream] = err
	}
}

// Faults are the streams that did not store the last message, and why.
func (p *Publisher) Faults() map[string]error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.faults)
}

// Fault is Faults as a text, "" without one.
func (p *Publisher) Fault() string {
	faults := p.Faults()
	var lines []string
	for _, stream := range slices.Sorted(maps.Keys(faults)) {
		lines = append(lines, notStored(stream, faults[stream].Error()))
	}
	return strings.Join(lines, "; ")
}

// Keep stores m however long that takes; m's Nats-Msg-Id makes a repetition harmless.
func (p *Publisher) Keep(ctx context.Context, m *nats.Msg) error {
	for n := 1; ; n++ {
		_, err := p.Publish(ctx, m)
		if err == nil || IsFinal(err) {
			return err
		}
		if !retry.Pause(ctx, retry.Keep.Wait(n)) {
			return fmt.Errorf("%w: %w", err, context.Cause(ctx))
		}
	}
}
