package bus

import (
	"bytes"
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

// Publisher stores messages in JetStream. Any number of goroutines may wait for their acknowledgements at once: they
// share one subscription and one flush of the connection, which is what makes a waited write cheap.
type Publisher struct {
	*acks

	mu     sync.Mutex
	faults map[string]storeFault // of the streams that did not store, until they do
	wait   time.Duration         // see TriesEvery
}

type storeFault struct {
	error
	at time.Time
}

// NewPublisher listens for acknowledgements on nc; they stop with nc.
func NewPublisher(nc *nats.Conn) (*Publisher, error) {
	p := &Publisher{acks: newAcks(nc.NewInbox() + "."), faults: map[string]storeFault{}}
	return p, p.listen(nc)
}

// Publish stores m once and waits for the answer. Errors: ErrNoAck, the server's *jetstream.APIError, or the connection's.
func (p *Publisher) Publish(ctx context.Context, m *nats.Msg) (Ack, error) {
	stream := streamOf(m.Subject)
	// A message with an id may be answered with the sequence at which it was stored long before.
	w := p.take(stream, m.Header[nats.MsgIdHdr] == nil)
	_ = w.Send(m) // Wait returns its error
	_, a, err := w.Wait(ctx)
	// Otherwise the caller left before the answer, or the fault is the message's.
	if err == nil || ctx.Err() == nil && !IsFinal(err) {
		p.note(stream, err)
	}
	return a, err
}

// MaxAtomic is the server's limit of the messages in one atomic batch.
const MaxAtomic = 1000

// note records why a stream did not store, until it does. A conflict shows only that it answers.
func (p *Publisher) note(stream string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case err == nil, isConflict(err) && errors.Is(p.faults[stream].error, ErrNoAck):
		delete(p.faults, stream)
	case !isConflict(err):
		p.faults[stream] = storeFault{err, time.Now()}
	}
}

// Faults are the streams that did not store the last message, and why, in the server's words where it has some. A fault ends
// too once nobody has tried again for a while: another poller may lead now, or another replica may have the request.
func (p *Publisher) Faults() map[string]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	lasts := max(retry.Refused, 2*p.wait)
	maps.DeleteFunc(p.faults, func(_ string, f storeFault) bool { return time.Since(f.at) > lasts })
	faults := map[string]string{}
	for stream, f := range p.faults {
		faults[stream] = f.Error()
		if api, ok := errors.AsType[*jetstream.APIError](f.error); ok {
			faults[stream] = api.Description
		}
	}
	return faults
}

// TriesEvery sets the longest wait until the program tries again what was refused. A fault lasts for two, and retry.Refused at least.
func (p *Publisher) TriesEvery(wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wait = wait
}

// Forget drops all faults, of a program that leaves writing to another replica.
func (p *Publisher) Forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.faults)
}

// Fault is Faults as a text, "" without one.
func (p *Publisher) Fault() string {
	faults := p.Faults()
	var lines []string
	for _, stream := range slices.Sorted(maps.Keys(faults)) {
		lines = append(lines, notStored(stream, faults[stream]))
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

// Ack says where a message was stored.
type Ack struct {
	Stream   string `json:"stream"`
	Sequence uint64 `json:"seq"`
}

// ErrNoAck means that it is not known whether the message was stored.
var ErrNoAck = errors.New("nats: no acknowledgement")

// ErrSetBack means that a message was stored where the stream had messages already: those are gone.
var ErrSetBack = errors.New("nats: the stream is an older copy of itself")

var (
	// errBroken is ErrNoAck for what was on its way when the connection broke.
	errBroken = fmt.Errorf("%w: the connection broke", ErrNoAck)
	// errNoStream is ErrNoAck where no stream takes the subject.
	errNoStream = fmt.Errorf("%w: %w", ErrNoAck, nats.ErrNoResponders)
)

// readAck reads the answer to a write, {"stream":"known","seq":1} without a JSON decoder, which takes ten times as long.
// Errors: ErrNoAck when it says nothing, or the server's *jetstream.APIError.
func readAck(m *nats.Msg, known string) (Ack, error) {
	if rest, ok := bytes.CutPrefix(m.Data, []byte(`{"stream":"`)); ok && len(rest) > len(known) && string(rest[:len(known)]) == known {
		rest, ok = bytes.CutPrefix(rest[len(known):], []byte(`","seq":`))
		digits, ends := bytes.CutSuffix(rest, []byte("}"))
		if ok && ends && len(digits) > 0 && digits[0] != '0' {
			if seq, err := strconv.ParseUint(string(digits), 10, 64); err == nil {
				return Ack{Stream: known, Sequence: seq}, nil
			}
		}
	}
	var a struct {
		Ack
		Error *jetstream.APIError `json:"error"`
	}
	switch err := json.Unmarshal(m.Data, &a); {
	case len(m.Data) == 0 && m.Header.Get("Status") == "503":
		return Ack{}, errNoStream
	case err == nil && a.Error != nil:
		return Ack{}, a.Error
	case err != nil, a.Stream == "", a.Sequence == 0:
		return Ack{}, ErrNoAck
	}
	return a.Ack, nil
}

// codeOf is JetStream's code of an error; 0 means that the error has none.
func codeOf(err error) jetstream.ErrorCode {
	if api, ok := errors.AsType[*jetstream.APIError](err); ok {
		return api.ErrorCode
	}
	return 0
}

// isConflict reports whether a fenced write was refused because of another one.
func isConflict(err error) bool {
	return codeOf(err) == jetstream.JSErrCodeStreamWrongLastSequence || IsInFlight(err)
}

// IsInFlight reports whether a cluster refused a fenced write because another one under the same fence is in flight.
func IsInFlight(err error) bool {
	return codeOf(err) == jetstream.JSErrCodeStreamWrongLastSequenceConstant
}

// What the server says of a message that it never takes.
const (
	errCodeMessageTooLarge = 10054
	errCodeHeaderTooLarge  = 10097
)

// tooLarge reports whether the server never takes a message of that size.
func tooLarge(err error) bool {
	code := codeOf(err)
	return errors.Is(err, nats.ErrMaxPayload) || code == errCodeMessageTooLarge || code == errCodeHeaderTooLarge
}

// IsFinal reports whether the same write would always fail: the message is too large, its subject or a header's name is
// not valid, or the connection was closed. After any other answer, unknown ones too, the write may succeed later.
func IsFinal(err error) bool {
	return tooLarge(err) || errors.Is(err, nats.ErrBadSubject) || errors.Is(err, nats.ErrBadHeaderMsg) ||
		errors.Is(err, nats.ErrConnectionClosed)
}
