// Package throttle limits the calls a second to an upstream, by one replica and by all replicas of a program together.
//
//	Limit.Wait ─► the replica's own rate ─► the fleet's ─► the call may be made, within retry.MayCall
//
//	Fleet.Run:  waiting callers ─► lease some calls ─► let one caller go at each of their times
//	                                 │ ▲
//	                                 ▼ │ compare-and-set, and the server's time of it
//	                               NATS, one list of leases for all replicas
//
// What was waited for and not used is lost: a process that stood still has saved up nothing, one that was killed loses at most
// two leases, and replicas need not be counted, since one without calls leases none.
//
//	limit.go  waiting
//	fleet.go  leasing a replica's share of the rate, and letting callers go
package throttle

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"errand/internal/retry"
)

// ErrStopping ends the wait of a caller when the program ends.
var ErrStopping = errors.New("throttle: the program ends, and the call was not its turn yet")

// Limit is what calls wait for.
type Limit struct {
	Replica *rate.Limiter       // nil means no limit
	Fleet   *Fleet              // nil means no limit
	Stop    <-chan struct{}     // closed when the program ends: all waits end
	Waited  func(time.Duration) // observes each wait that ended with a call

	owed atomic.Int64 // calls that did not wait, and that no caller has waited for instead
	once sync.Once
	both chan struct{} // has an element for each caller that waits for both limits
}

// NewReplica is the limiter of one replica, without bursts.
func NewReplica(perSecond float64) *rate.Limiter { return rate.NewLimiter(rate.Limit(perSecond), 1) }

// Wait waits until a call may be made, within retry.MayCall. The error is ErrStopping or the context's cause.
func (l *Limit) Wait(ctx context.Context) error {
	if retry.Stopped(l.Stop) {
		return ErrStopping
	}
	began := time.Now()
	if l.Replica != nil && l.Fleet != nil {
		if err := l.few(ctx); err != nil {
			return err
		}
		defer func() { <-l.both }()
	}
	for {
		if l.Replica != nil {
			if err := l.replica(ctx); err != nil {
				return err
			}
		}
		if l.Fleet != nil {
			if err := l.Fleet.wait(ctx, l.Stop); err != nil {
				return err
			}
		}
		if !l.pay() {
			l.Waited(time.Since(began))
			return nil
		}
	}
}

// few bounds the callers that wait for both limits: the ones that the replica's limit let pass, and that wait for the fleet's,
// are no more than may call at once.
func (l *Limit) few(ctx context.Context) error {
	l.once.Do(func() { l.both = make(chan struct{}, 1+int(float64(l.Replica.Limit())*retry.RateSpare.Seconds())) })
	select {
	case l.both <- struct{}{}:
		return nil
	case <-ctx.Done():
	case <-l.Stop:
	}
	return whyEnded(ctx)
}

// Owe counts a call that is made right after another one and does not wait: the next caller waits twice.
func (l *Limit) Owe() { l.owed.Add(1) }

// pay reports whether what was waited for is used up by a call that did not wait.
func (l *Limit) pay() bool {
	for {
		owed := l.owed.Load()
		if owed == 0 || l.owed.CompareAndSwap(owed, owed-1) {
			return owed > 0
		}
	}
}

// replica waits for the replica's rate. After a process stood still all reservations are due at once: they are not used.
func (l *Limit) replica(ctx context.Context) error {
	for {
		own := l.Replica.Reserve()
		due := time.Now().Add(own.Delay())
		if own.Delay() > 0 {
			if !retry.PauseUntil(ctx, l.Stop, own.Delay()) || retry.Stopped(l.Stop) {
				own.Cancel()
				return whyEnded(ctx)
			}
		}
		if fresh(due.Add(retry.RateSpare)) {
			return nil
		}
	}
}

func whyEnded(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return ErrStopping
}

// fresh reports whether a time has not passed by either clock: the monotonic one stops while the machine is suspended, and the
// wall clock may be set.
func fresh(until time.Time) bool {
	now := time.Now()
	return now.Before(until) && now.Round(0).Before(until.Round(0))
}
