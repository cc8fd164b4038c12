package sink

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/retry"
)

// acks receives the acknowledgements of pages of writes: one wait a page instead of one a
// row. Several pages may be under way.
type acks struct {
	prefix string // of the reply subjects; the number of a write follows
	usual  []byte // what a usual answer begins with

	mu    sync.Mutex
	next  uint64 // number of the next write
	last  uint64 // sequence of the last message of ours that is known to be stored
	pages []*page
}

// page is what is known of writes that are under way together.
type page struct {
	first   uint64        // number of the first one
	after   uint64        // sequence that each is stored behind
	got     []error       // by write: nil when it is stored
	left    int           // writes without an answer
	refusal error         // the server's first answer that one is not stored
	done    chan struct{} // closed when nothing more is waited for
	until   time.Time     // when an answer is no longer waited for
}

// writeTime is what a write may take beyond retry.Answer when there are many.
const writeTime = 2 * time.Millisecond

// errUnanswered is what is known of a write until there is an answer.
var errUnanswered = fmt.Errorf("%w yet", bus.ErrNoAck)

// errOlder means that a write was stored where the stream had messages already: those are gone.
var errOlder = errors.New("the stream is an older copy of itself")

func newAcks(nc *nats.Conn, stream string) (*acks, error) {
	a := &acks{prefix: nc.NewInbox() + ".", usual: []byte(`{"stream":"` + stream + `","seq":`)}
	sub, err := nc.Subscribe(a.prefix+"*", a.receive)
	if err != nil {
		return nil, fmt.Errorf("nats: subscribe to acknowledgements: %w", err)
	}
	return a, sub.SetPendingLimits(-1, -1)
}

// begin makes room for the answers to n writes.
func (a *acks) begin(n int) *page {
	p := &page{got: slices.Repeat([]error{errUnanswered}, n), left: n, done: make(chan struct{})}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pages = append(a.pages, p)
	writes := 0 // the server answers in order: those of the pages before take their time too
	for _, other := range a.pages {
		writes += len(other.got)
	}
	p.until = time.Now().Add(retry.Answer + time.Duration(writes)*writeTime)
	p.first, p.after = a.next, a.last
	a.next += uint64(n)
	return p
}

// reply is the reply subject of write i.
func (a *acks) reply(p *page, i int) string {
	return a.prefix + strconv.FormatUint(p.first+uint64(i), 36)
}

// abort notes that write i could not be sent, nor will be those behind it.
func (a *acks) abort(p *page, i int, why error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p.left -= len(p.got) - i
	p.got = append(p.got[:i], why)
	p.end()
}

func (a *acks) receive(m *nats.Msg) {
	number, err := strconv.ParseUint(m.Subject[len(a.prefix):], 36, 64)
	if err != nil {
		return
	}
	sequence, answer := a.stored(m.Data), error(nil)
	if sequence == 0 {
		var ack bus.Ack
		ack, answer = bus.ParseAck(m.Data)
		sequence = ack.Sequence
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range a.pages {
		// Far beyond the end when it is of an earlier page.
		if i := number - p.first; i < uint64(len(p.got)) && errors.Is(p.got[i], errUnanswered) {
			if answer == nil && 0 < sequence && sequence <= p.after {
				answer = errOlder
			}
			a.last = max(a.last, sequence)
			p.answered(int(i), answer)
		}
	}
}

// stored gives the sequence in an answer that is the usual one; 0: it is another. Whatever else is
// stored, too, a JSON decoder finds out in ten times the time.
func (a *acks) stored(answer []byte) (sequence uint64) {
	digits, ok := bytes.CutPrefix(answer, a.usual)
	digits, end := bytes.CutSuffix(digits, []byte("}"))
	if !ok || !end || len(digits) == 0 || len(digits) > 18 || digits[0] == '0' {
		return 0
	}
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0
		}
		sequence = 10*sequence + uint64(c-'0')
	}
	return sequence
}

// note notes where the last message of ours is, and reports whether the stream had messages there already.
func (a *acks) note(sequence uint64) (older bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	older, a.last = sequence <= a.last, sequence
	return older
}

func (p *page) answered(i int, answer error) {
	p.got[i] = answer
	p.left--
	if p.refusal == nil && refused(answer) {
		p.refusal = answer
	}
	p.end()
}

// end ends the wait when there is nothing to wait for: what comes after a refusal must be
// learned anyhow.
func (p *page) end() {
	if p.left > 0 && p.refusal == nil {
		return
	}
	select {
	case <-p.done:
	default:
		close(p.done)
	}
}

// refused reports whether the server answered that it does not store the write.
func refused(answer error) bool {
	var api *jetstream.APIError
	return errors.As(answer, &api)
}

// wait gives how many writes from the first are stored, and what became of the next.
// bus.ErrNoAck: nobody knows.
func (a *acks) wait(ctx context.Context, p *page) (stored int, err error) {
	timer := time.NewTimer(time.Until(p.until))
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
	case <-ctx.Done():
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pages = slices.DeleteFunc(a.pages, func(other *page) bool { return other == p })
	for i, err := range p.got {
		switch {
		case err == nil:
		case errors.Is(err, bus.ErrNoAck) && p.refusal != nil: // a refusal may overtake
			return i, p.refusal
		default:
			return i, err
		}
	}
	return len(p.got), nil
}
