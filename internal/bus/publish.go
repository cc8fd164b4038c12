package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/retry"
)

// Publisher stores messages in JetStream. Any number of goroutines may wait for
// their acknowledgements at once: they share one reply subject and one flush of
// the connection, which is what makes a waited write cheap.
type Publisher struct {
	nc     *nats.Conn
	prefix string

	mu      sync.Mutex
	next    uint64
	waiting map[string]chan answer
	faults  map[string]error // of the streams that did not store, until they do
}

// Ack says where a message was stored.
type Ack struct {
	Stream    string `json:"stream"`
	Sequence  uint64 `json:"seq"`
	Duplicate bool   `json:"duplicate"` // it was stored before, by its Nats-Msg-Id
}

// answer is what became of a write.
type answer struct {
	Ack
	err error
}

// ErrNoAck means that nobody knows whether the message was stored.
var ErrNoAck = errors.New("nats: no acknowledgement")

// errBroken is ErrNoAck for what was on its way when the connection broke.
var errBroken = fmt.Errorf("%w: the connection broke", ErrNoAck)

// NewPublisher listens for acknowledgements on nc; they stop with nc.
func NewPublisher(nc *nats.Conn) (*Publisher, error) {
	p := &Publisher{nc: nc, prefix: nc.NewInbox() + ".", waiting: map[string]chan answer{}, faults: map[string]error{}}
	sub, err := nc.Subscribe(p.prefix+"*", p.acknowledged)
	if err != nil {
		return nil, fmt.Errorf("nats: subscribe to acknowledgements: %w", err)
	}
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		return nil, err
	}
	status := nc.StatusChanged(nats.RECONNECTING, nats.CLOSED)
	go func() { // ends with the connection
		for s := range status {
			p.lost()
			if s == nats.CLOSED {
				return
			}
		}
	}()
	return p, nil
}

// lost wakes everybody who waits: what the server answered before the connection
// broke never comes.
func (p *Publisher) lost() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for token, done := range p.waiting {
		done <- answer{err: errBroken}
		delete(p.waiting, token)
	}
}

func (p *Publisher) acknowledged(m *nats.Msg) {
	token := m.Subject[len(p.prefix):]
	p.mu.Lock()
	done := p.waiting[token]
	delete(p.waiting, token) // done has room for one answer
	p.mu.Unlock()
	if done == nil {
		return // its waiter has gone
	}
	a, err := ParseAck(m.Data)
	done <- answer{a, err}
}

// ParseAck reads the answer to a write. Errors: ErrNoAck when it says nothing, as when no
// stream listens; the server's *jetstream.APIError.
func ParseAck(data []byte) (Ack, error) {
	var a struct {
		Ack
		Error *jetstream.APIError `json:"error"`
	}
	switch err := json.Unmarshal(data, &a); {
	case err != nil, a.Error == nil && a.Stream == "":
		return Ack{}, ErrNoAck
	case a.Error != nil:
		return Ack{}, a.Error
	}
	return a.Ack, nil
}

// Publish stores m once and waits for the server's answer. Errors: ErrNoAck, the server's
// *jetstream.APIError, or what keeps the connection from sending it.
func (p *Publisher) Publish(ctx context.Context, m *nats.Msg) (Ack, error) {
	a, err := p.publish(ctx, m)
	// Else nobody waited for the answer, or it is this message's own fault.
	if err == nil || ctx.Err() == nil && !IsFinal(err) {
		p.note(m.Subject, err)
	}
	return a, err
}

// note keeps why the stream of a subject did not store, until it does. A conflict says only
// that it answers.
func (p *Publisher) note(subject string, err error) {
	stream := streamOf(subject)
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

func (p *Publisher) publish(ctx context.Context, m *nats.Msg) (Ack, error) {
	done := make(chan answer, 1)
	p.mu.Lock()
	p.next++
	token := strconv.FormatUint(p.next, 36)
	p.waiting[token] = done
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.waiting, token)
		p.mu.Unlock()
	}()
	m.Reply = p.prefix + token
	if err := p.nc.PublishMsg(m); err != nil {
		return Ack{}, err
	}
	timer := time.NewTimer(retry.Answer)
	defer timer.Stop()
	select {
	case a := <-done:
		return a.Ack, a.err
	case <-timer.C:
		return Ack{}, ErrNoAck
	case <-ctx.Done():
		return Ack{}, fmt.Errorf("%w: %w", ErrNoAck, context.Cause(ctx))
	}
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
