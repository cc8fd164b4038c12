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
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/retry"
)

// Publisher stores messages in JetStream. Any number of goroutines may wait for
// their acknowledgements at once: they share one subscription and one flush of
// the connection, which is what makes a waited write cheap.
type Publisher struct {
	nc      *nats.Conn
	answers *answers

	mu     sync.Mutex
	faults map[string]error // of the streams that did not store, until they do
}

// NewPublisher listens for acknowledgements on nc; they stop with nc.
func NewPublisher(nc *nats.Conn) (*Publisher, error) {
	p := &Publisher{nc: nc, answers: newAnswers(nc.NewInbox() + "."), faults: map[string]error{}}
	sub, err := nc.Subscribe(p.answers.prefix+"*", p.answers.came)
	if err != nil {
		return nil, fmt.Errorf("nats: subscribe to acknowledgements: %w", err)
	}
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		return nil, err
	}
	status := nc.StatusChanged(nats.RECONNECTING, nats.CLOSED)
	go func() { // ends with the connection
		for s := range status {
			p.answers.lost()
			if s == nats.CLOSED {
				return
			}
		}
	}()
	return p, nil
}

// Publish stores m once and waits for the server's answer. Errors: ErrNoAck, the server's
// *jetstream.APIError, or what keeps the connection from sending it.
func (p *Publisher) Publish(ctx context.Context, m *nats.Msg) (Ack, error) {
	stream := streamOf(m.Subject)
	a, err := p.publish(ctx, stream, m)
	// Else nobody waited for the answer, or it is this message's own fault.
	if err == nil || ctx.Err() == nil && !IsFinal(err) {
		p.note(stream, err)
	}
	return a, err
}

func (p *Publisher) publish(ctx context.Context, stream string, m *nats.Msg) (a Ack, err error) {
	// With an id, it may be told where it was stored long before.
	s := p.answers.take(stream, m.Header[nats.MsgIdHdr] == nil)
	m.Reply = s.subject
	if err = p.nc.PublishMsg(m); err == nil {
		a, err = s.wait(ctx)
	}
	p.answers.leave(s, stream, err)
	return a, err
}

// note keeps why a stream did not store, until it does. A conflict says only that it answers.
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

// Faults are the streams that did not store the last that was written to them, and why.
func (p *Publisher) Faults() map[string]error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.faults)
}

// Fault is Faults as a text; "" when all did.
func (p *Publisher) Fault() string {
	faults := p.Faults()
	var said []string
	for _, stream := range slices.Sorted(maps.Keys(faults)) {
		said = append(said, fmt.Sprintf("NATS does not store in %s: %v", stream, faults[stream]))
	}
	return strings.Join(said, "; ")
}

// Keep stores m however long that takes, and is safe to repeat by m's Nats-Msg-Id.
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

// What the server says of a message that it never takes.
const (
	errCodeMessageTooLarge = 10054
	errCodeHeaderTooLarge  = 10097
)

// tooLarge reports whether the server takes nothing of that size.
func tooLarge(err error) bool {
	code := codeOf(err)
	return errors.Is(err, nats.ErrMaxPayload) || code == errCodeMessageTooLarge || code == errCodeHeaderTooLarge
}

// codeOf is JetStream's code of an error; 0: it is none of JetStream's.
func codeOf(err error) jetstream.ErrorCode {
	if api, ok := errors.AsType[*jetstream.APIError](err); ok {
		return api.ErrorCode
	}
	return 0
}

// IsFinal reports whether the same write would fail again for ever: the message is too
// large, its subject or a header's name is none, or the connection was closed. Every
// other answer of a server may become better, those too that no version so far has given.
func IsFinal(err error) bool {
	return tooLarge(err) || errors.Is(err, nats.ErrBadSubject) || errors.Is(err, nats.ErrBadHeaderMsg) || errors.Is(err, nats.ErrConnectionClosed)
}
