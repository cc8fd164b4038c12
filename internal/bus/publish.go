package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	waiting map[string]chan ack
	refused map[string]refusal
}

// ack is the server's word on a write.
type ack struct {
	Stream    string              `json:"stream"`
	Sequence  uint64              `json:"seq"`
	Duplicate bool                `json:"duplicate"`
	Error     *jetstream.APIError `json:"error"`

	broken bool // there is none and will be none, since the connection broke
}

// errNoAck means that nobody knows whether the message was stored.
var errNoAck = errors.New("nats: no acknowledgement")

// errBroken is errNoAck for what was on its way when the connection broke.
var errBroken = fmt.Errorf("%w: the connection broke", errNoAck)

// ackWait is how long a write may take before it is looked after.
const ackWait = 5 * time.Second

// NewPublisher listens for acknowledgements on nc; they stop with nc.
func NewPublisher(nc *nats.Conn) (*Publisher, error) {
	p := &Publisher{nc: nc, prefix: nc.NewInbox() + ".", waiting: map[string]chan ack{}, refused: map[string]refusal{}}
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
		done <- ack{broken: true}
		delete(p.waiting, token)
	}
}

func (p *Publisher) acknowledged(m *nats.Msg) {
	token := m.Subject[len(p.prefix):]
	p.mu.Lock()
	done := p.waiting[token]
	delete(p.waiting, token)
	p.mu.Unlock()
	if done == nil {
		return // its waiter has gone
	}
	var a ack
	if err := json.Unmarshal(m.Data, &a); err != nil || (a.Stream == "" && a.Error == nil) {
		a = ack{} // no stream listens (no responders), or an answer that says nothing
	}
	done <- a
}

// Publish stores m once and waits for the server's word. errNoAck: unknown.
func (p *Publisher) Publish(ctx context.Context, m *nats.Msg) (ack, error) {
	a, err := p.publish(ctx, m)
	if ctx.Err() == nil {
		kind, _, _ := strings.Cut(m.Subject, ".") // mandate, mail or dead: another stream each
		p.mu.Lock()
		defer p.mu.Unlock()
		if err == nil || final(err) {
			delete(p.refused, kind)
		} else {
			p.refused[kind] = refusal{time.Now(), err}
		}
	}
	return a, err
}

// refusal is a write that NATS did not store and may store later.
type refusal struct {
	at  time.Time
	why error
}

// Fault says what NATS does not store lately; "" when it stores everything.
func (p *Publisher) Fault() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	for kind, r := range p.refused {
		if time.Since(r.at) < 3*ackWait { // a write that still waits was tried again since
			return fmt.Sprintf("NATS does not store %s.>: %v", kind, r.why)
		}
	}
	return ""
}

func (p *Publisher) publish(ctx context.Context, m *nats.Msg) (ack, error) {
	done, token := make(chan ack, 1), ""
	p.mu.Lock()
	p.next++
	token = strconv.FormatUint(p.next, 36)
	p.waiting[token] = done
	p.mu.Unlock()
	forget := func() {
		p.mu.Lock()
		delete(p.waiting, token)
		p.mu.Unlock()
	}
	m.Reply = p.prefix + token
	if err := p.nc.PublishMsg(m); err != nil {
		forget()
		return ack{}, err
	}
	timer := time.NewTimer(ackWait)
	defer timer.Stop()
	select {
	case a := <-done:
		switch {
		case a.broken:
			return a, errBroken
		case a.Error != nil:
			return a, a.Error
		case a.Stream == "":
			return a, errNoAck
		}
		return a, nil
	case <-timer.C:
		forget()
		return ack{}, errNoAck
	case <-ctx.Done():
		forget()
		return ack{}, fmt.Errorf("%w: %w", errNoAck, context.Cause(ctx))
	}
}

// Keep stores m however long that takes, and is safe to repeat by m's Nats-Msg-Id.
func (p *Publisher) Keep(ctx context.Context, m *nats.Msg) error {
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		_, err := p.Publish(ctx, m)
		if err == nil || final(err) {
			return err
		}
		if !retry.Pause(ctx, wait) {
			return fmt.Errorf("%w: %w", err, context.Cause(ctx))
		}
	}
}

// tooLarge reports whether the server takes nothing of that size.
func tooLarge(err error) bool {
	var api *jetstream.APIError
	return errors.Is(err, nats.ErrMaxPayload) || errors.As(err, &api) && api.ErrorCode == errCodeMessageTooLarge
}

const errCodeMessageTooLarge = 10054

// final reports whether the same write would get the same answer again.
func final(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && api.Code < 500 || errors.Is(err, nats.ErrMaxPayload) ||
		errors.Is(err, nats.ErrConnectionClosed) || errors.Is(err, nats.ErrBadSubject)
}
