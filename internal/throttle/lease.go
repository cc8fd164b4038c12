package throttle

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"errand/internal/retry"
)

// Entry is one lease as the servers keep it. The zero value means that there is none.
type Entry struct {
	Sequence uint64
	At       time.Time // when it was stored, by the servers' clock
	Known    time.Time // when its acknowledgement came, by our clock; of Store only
	Body     []byte
}

// Leases are the leases of all replicas, in the order in which the servers stored them.
type Leases interface {
	// Last returns the last lease, perhaps not the newest.
	Last(ctx context.Context) (Entry, error)
	// Store stores a lease after the last one. ErrConflict means that another one came first; after any other error it may be stored.
	Store(ctx context.Context, body []byte, last uint64) (Entry, error)
}

// ErrConflict means that another replica was faster.
var ErrConflict = errors.New("throttle: another replica was faster")

// record is the body of a lease. Its times are of the servers' clock. Ahead is in calls, so that a changed limit holds at once.
type record struct {
	Calls int       `json:"calls"` // leased, to be made one after the other
	Ahead float64   `json:"ahead"` // calls leased before and not due yet at Since
	Since time.Time `json:"since"` // when the lease before was stored; zero if there was none
}

// aheadAt is how many of the calls leased before are not due yet at a time. A servers' clock that was set back, as by a change
// of the leader, counts as one that stood still.
func (r record) aheadAt(at time.Time, perSecond float64) float64 {
	if r.Since.IsZero() {
		return 0
	}
	return max(0, r.Ahead-perSecond*max(0, at.Sub(r.Since).Seconds()))
}

// after is a record of calls behind the last one, if that can be read.
func after(last Entry, calls int, perSecond float64) record {
	next := record{Calls: calls}
	var before record
	if last.Sequence > 0 && json.Unmarshal(last.Body, &before) == nil {
		next.Ahead, next.Since = before.aheadAt(last.At, perSecond)+float64(max(before.Calls, 0)), last.At
	}
	return next
}

// lease is some calls that this replica may make, by its own clocks.
type lease struct {
	calls int
	step  time.Duration // from one call to the next
	first time.Time     // not earlier than the first call is due
	until time.Time     // not later than the first call is lost
}

// acquire leases calls, which begin when all that were leased before are due. The servers stored the lease between its writing
// and its acknowledgement: the calls are due counted from the latter, and lost counted from the former. So none is early, and
// a process that stood still in between has leased nothing.
func (f *Fleet) acquire(ctx context.Context, calls int) (lease, error) {
	last, err := f.Leases.Last(ctx)
	if err != nil {
		return lease{}, err
	}
	mine := after(last, calls, f.PerSecond)
	body, err := json.Marshal(mine)
	if err != nil {
		return lease{}, err
	}
	began := time.Now()
	stored, err := f.Leases.Store(ctx, body, last.Sequence)
	if err != nil {
		return lease{}, err
	}
	ahead := f.seconds(mine.aheadAt(stored.At, f.PerSecond))
	return lease{calls: calls, step: f.seconds(1), first: stored.Known.Add(ahead), until: began.Add(ahead + retry.RateSpare)}, nil
}

// seconds is how long calls take.
func (f *Fleet) seconds(calls float64) time.Duration {
	return time.Duration(calls / f.PerSecond * float64(time.Second))
}
