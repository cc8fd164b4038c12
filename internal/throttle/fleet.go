package throttle

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"errand/internal/retry"
)

// Fleet is the limit of all replicas of a program together.
type Fleet struct {
	PerSecond float64
	Leases    Leases
	Log       zerolog.Logger

	calls  chan time.Time // releases one caller, until this time
	wanted chan struct{}  // a caller waits
	short  atomic.Int64   // callers that wait, less the calls that are leased and were not made
	used   atomic.Int64   // calls of the last lease that were made
	took   time.Duration  // to get the last lease; of the goroutine that leases
	leased atomic.Int64   // calls, in all
	fault  atomic.Pointer[string]
}

// NewFleet returns a limit that releases no caller until it runs.
func NewFleet(perSecond float64, leases Leases, log zerolog.Logger) *Fleet {
	return &Fleet{PerSecond: perSecond, Leases: leases, Log: log, calls: make(chan time.Time), wanted: make(chan struct{}, 1)}
}

// wait waits for one call.
func (f *Fleet) wait(ctx context.Context, stop <-chan struct{}) error {
	for {
		f.need(1)
		select {
		case until := <-f.calls: // the caller is served, the call is used: short stays as it is
			if fresh(until) {
				return nil
			}
		case <-ctx.Done():
			f.short.Add(-1)
			return context.Cause(ctx)
		case <-stop:
			f.short.Add(-1)
			return ErrStopping
		}
	}
}

// need counts callers that have no leased call yet.
func (f *Fleet) need(callers int64) {
	if f.short.Add(callers) <= 0 {
		return
	}
	select {
	case f.wanted <- struct{}{}:
	default: // it is known that callers wait
	}
}

// Run leases calls while callers wait, and releases them, until ctx ends. One lease is used while the next is acquired.
func (f *Fleet) Run(ctx context.Context) {
	leases := make(chan lease)
	var pacer sync.WaitGroup
	pacer.Go(func() {
		for {
			select {
			case l := <-leases:
				f.pace(ctx, l)
			case <-ctx.Done():
				return
			}
		}
	})
	f.lease(ctx, leases)
	pacer.Wait()
}

// lease leases calls whenever callers wait without one. It begins with an empty lease: a replica that lacks the permission
// should say so before there is work.
func (f *Fleet) lease(ctx context.Context, out chan<- lease) {
	var began time.Time // when the next lease was wanted
	for failed, allowed := 0, false; ctx.Err() == nil; {
		calls := f.next()
		if calls == 0 && allowed {
			f.fault.Store(nil) // whatever it was, no caller waits
			select {
			case <-f.wanted:
			case <-ctx.Done():
			}
			continue
		}
		if began.IsZero() {
			began = time.Now()
		}
		l, err := f.acquire(ctx, calls)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, ErrConflict):
			retry.Pause(ctx, rand.N(retry.RateConflict))
			continue
		case err != nil:
			failed++
			f.report(err)
			retry.Pause(ctx, retry.Store.Wait(failed))
			continue
		}
		f.report(nil)
		f.took = time.Since(began)
		failed, allowed, began = 0, true, time.Time{}
		if calls == 0 {
			continue
		}
		f.short.Add(int64(-l.calls))
		f.leased.Add(int64(l.calls))
		select {
		case out <- l:
		case <-ctx.Done():
		}
	}
}

// next is how many calls to lease: for all that wait, or twice as many as were made of the last lease, so that not each call
// has its lease; 0 if no caller waits.
func (f *Fleet) next() int {
	short := f.short.Load()
	if short <= 0 {
		return 0
	}
	slice := min(max(retry.RateSlice, 2*f.took), retry.RateSliceMax) // leases that take long to acquire last longer
	return int(min(max(short, 2*f.used.Load()), max(1, int64(f.PerSecond*slice.Seconds()))))
}

// pace releases callers, one at each of a lease's times.
func (f *Fleet) pace(ctx context.Context, l lease) {
	used := int64(0)
	for i := range l.calls {
		later := time.Duration(i) * l.step
		if f.release(ctx, l.first.Add(later), l.until.Add(later)) {
			used++
		} else {
			f.need(1)
		}
	}
	f.used.Store(used)
}

// release reports whether a caller went between two times.
func (f *Fleet) release(ctx context.Context, from, until time.Time) bool {
	if wait := time.Until(from); wait > 0 {
		retry.Pause(ctx, wait)
	}
	if !fresh(until) {
		return false
	}
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case f.calls <- until:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// report notes why nothing can be leased, nil if calls can be leased.
func (f *Fleet) report(err error) {
	before := f.Fault()
	if err == nil {
		if before != "" {
			f.Log.Info().Msg("FLEET_RATE: calls can be leased again")
		}
		f.fault.Store(nil)
		return
	}
	now := "calls wait for FLEET_RATE, of which none can be leased: " + err.Error()
	if f.fault.Store(&now); now != before {
		f.Log.Warn().Str("why", now).Msg("not ready: calls wait")
	}
}

// Fault says why nothing can be leased although callers wait; "" if calls can be leased.
func (f *Fleet) Fault() string {
	if why := f.fault.Load(); why != nil {
		return *why
	}
	return ""
}

// Leased is how many calls this replica has leased since its start.
func (f *Fleet) Leased() float64 { return float64(f.leased.Load()) }

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
	body, _ := json.Marshal(mine) // numbers and times always encode
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
