package bus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"errand/internal/retry"
	"errand/internal/throttle"
)

// LeaseStore stores the leases of one program's rate.
type LeaseStore struct {
	Publisher *Publisher
	Program   string
}

var _ throttle.Leases = LeaseStore{}

func (s LeaseStore) subject() string { return "rate." + s.Program }

// Last returns the last lease, as any replica of the stream has it.
func (s LeaseStore) Last(ctx context.Context) (throttle.Entry, error) {
	got, err := direct(ctx, s.Publisher.nc, RateLeases, lastOf(s.subject()))
	if err != nil {
		return throttle.Entry{}, fmt.Errorf("read a lease: %w", s.explain(err))
	}
	return entryOf(got), nil
}

func entryOf(got *Message) throttle.Entry {
	if got == nil {
		return throttle.Entry{}
	}
	return throttle.Entry{Sequence: got.Sequence, At: got.Time, Body: got.Data}
}

// leaseReads is how often a lease that was just stored is read: the replica of the stream that answers may not have it yet.
const leaseReads = 10

// Store stores a lease over the last one and reads its time. A lease that is gone by then counts as a conflict.
func (s LeaseStore) Store(ctx context.Context, body []byte, last uint64) (throttle.Entry, error) {
	m := &nats.Msg{Subject: s.subject(), Data: body, Header: nats.Header{}}
	Fence(m.Header, m.Subject, last)
	limited, cancel := context.WithTimeout(ctx, retry.Answer)
	defer cancel()
	w := s.Publisher.take(RateLeases, false) // the stream may be made again: its sequences prove nothing
	_ = w.Send(m)                            // Wait returns its error
	_, ack, err := w.Wait(limited)
	known := time.Now()
	if isConflict(err) {
		return throttle.Entry{}, throttle.ErrConflict
	}
	for n := 1; err == nil; n++ {
		var got *Message
		got, err = direct(limited, s.Publisher.nc, RateLeases, map[string]any{"seq": ack.Sequence})
		switch {
		case err != nil:
		case got != nil:
			e := entryOf(got)
			e.Known = known
			return e, nil
		case n == leaseReads || !retry.Pause(limited, retry.RateRead):
			return throttle.Entry{}, throttle.ErrConflict
		}
	}
	return throttle.Entry{}, fmt.Errorf("store a lease: %w", s.explain(err))
}

func (s LeaseStore) explain(err error) error {
	if errors.Is(err, nats.ErrNoResponders) {
		return fmt.Errorf("%w: NATS has no stream %s, or it does not answer: run `errand provision --missing`", err, RateLeases)
	}
	return Explain(s.Publisher.nc, err)
}
