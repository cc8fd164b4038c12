package sink

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/failpoint"
	"errand/internal/retry"
)

// tally waits for the acknowledgements of many writes at once: one wait a page
// instead of one a row. One goroutine may write at a time.
type tally struct {
	nc     *nats.Conn
	prefix string

	mu    sync.Mutex
	first uint64  // number of the first write of those that are waited for
	got   []error // nil: stored, or still waited for
	seen  []bool
	left  int
	done  chan struct{}
}

func newTally(nc *nats.Conn) (*tally, error) {
	t := &tally{nc: nc, prefix: nc.NewInbox() + "."}
	sub, err := nc.Subscribe(t.prefix+"*", t.acknowledged)
	if err != nil {
		return nil, fmt.Errorf("nats: subscribe to acknowledgements: %w", err)
	}
	return t, sub.SetPendingLimits(-1, -1)
}

func (t *tally) acknowledged(m *nats.Msg) {
	number, err := strconv.ParseUint(m.Subject[len(t.prefix):], 36, 64)
	if err != nil {
		return
	}
	_, answer := bus.ParseAck(m.Data)
	t.mu.Lock()
	defer t.mu.Unlock()
	i := number - t.first // far beyond the end when it is of an earlier page
	if i >= uint64(len(t.got)) || t.seen[i] {
		return
	}
	t.got[i], t.seen[i] = answer, true
	t.left--
	if t.left == 0 || refused(answer) { // what comes after a refusal must be learned anyhow
		t.end()
	}
}

// refused reports whether the server answered that it does not store the write.
func refused(answer error) bool {
	var api *jetstream.APIError
	return errors.As(answer, &api)
}

func (t *tally) end() {
	select {
	case <-t.done:
	default:
		close(t.done)
	}
}

// begin makes room for n answers; what is still to come for earlier ones is dropped.
func (t *tally) begin(n int) (first uint64, done chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.first += uint64(len(t.got))
	t.got, t.seen, t.left, t.done = make([]error, n), make([]bool, n), n, make(chan struct{})
	return t.first, t.done
}

// wait waits until all answers are there, or for retry.Answer and what so many may take.
func (t *tally) wait(ctx context.Context, done chan struct{}, n int) {
	timer := time.NewTimer(retry.Answer + time.Duration(n)*2*time.Millisecond)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// answer is what became of write i; nil: it was stored. bus.ErrNoAck: unknown.
func (t *tally) answer(i int) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.seen[i] {
		return bus.ErrNoAck
	}
	return t.got[i]
}

// each writes every message on its own, all at once, and gives how many of the
// first were stored and what became of the next.
func (d *Deliveries) each(ctx context.Context, ms []*nats.Msg) (int, error) {
	first, done := d.tally.begin(len(ms))
	guard := nats.Header{}
	bus.Fence(guard, leadership, d.token)
	for i, m := range ms {
		maps.Copy(m.Header, guard)
		m.Reply = d.tally.prefix + strconv.FormatUint(first+uint64(i), 36)
		if err := d.tally.nc.PublishMsg(m); err != nil {
			return 0, err
		}
		failpoint.Here(failpoint.Publishing)
	}
	d.tally.wait(ctx, done, len(ms))
	for i := range ms {
		if err := d.tally.answer(i); err != nil {
			return i, err
		}
	}
	return len(ms), nil
}

// maxInBatch is the server's limit.
const maxInBatch = 1000

// batch stores all messages or none.
func (d *Deliveries) batch(ctx context.Context, ms []*nats.Msg) error {
	first, done := d.tally.begin(1)
	id := []string{d.writer + "-" + strconv.FormatUint(first, 36)}
	for i, m := range ms {
		m.Header["Nats-Batch-Id"] = id
		m.Header["Nats-Batch-Sequence"] = []string{strconv.Itoa(i + 1)}
		if i == 0 {
			bus.Fence(m.Header, leadership, d.token)
		}
		if i == len(ms)-1 {
			m.Header["Nats-Batch-Commit"] = []string{"1"}
			m.Reply = d.tally.prefix + strconv.FormatUint(first, 36)
		}
		if err := d.tally.nc.PublishMsg(m); err != nil {
			return err
		}
	}
	d.tally.wait(ctx, done, len(ms))
	return d.tally.answer(0)
}
