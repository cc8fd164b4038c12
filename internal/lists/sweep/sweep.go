// Package sweep reads a paged, growing list again and again, and has each state of each of its rows published once.
//
//	head   from the first page until it meets the rows with which the last one began     each sweep
//	open   the pages on which rows were that may change                                 \
//	near   the newest rows again, which may be late                                      } a page a second together
//	scan   around the whole list: what is very late, changed or misplaced               /
//	               │
//	page ─► states not known ─► Sink.Publish ─► known ─► mark
//	             ▲                  └─ ErrBehind: Sink.Lead and Learn, publish what is still missing
//	             └─ learned from the events themselves
//
// The events are the only memory: there is no cursor that could disagree with them. One sweeper leads; the others read one page at
// most, and follow the events, until none answers that it leads. reading.go is one reading, run.go the head, background.go the rest.
//
// A state that begins and ends between two looks is never seen. Only a head and a whole scan move the mark; the order of
// the steps in run.go (publish, learn, mark) decides what it may claim: change it only with the model's runs.
package sweep

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"errand/internal/retry"
	"errand/pkg/clients"
)

// Sweeper sweeps one list. All exported fields are required. It works in one goroutine,
// and another one that reads the next page.
type Sweeper[T any] struct {
	List   List[T]
	Sink   Sink[T]
	Policy retry.Policy // for each read; Max is also the pause between probes while held
	Settings
	Logger zerolog.Logger

	Lag     func(time.Duration) // is called after each complete sweep with the time since it began
	Leading func(bool)          // is called when this sweeper begins and ceases to lead

	fault    atomic.Pointer[fault]
	warned   time.Time               // when a failed sweep was last logged
	readLast atomic.Pointer[reading] // the last complete one, of whatever part
	once     sync.Once
	asked    chan extra[T] // to be published between two pages
}

// fault is why a sweeper is not ready.
type fault struct {
	why      string // "" if it is
	upstream bool   // the service is at fault
}

// Settings are how a list is swept.
type Settings struct {
	Name     string        // of the list, for people
	Interval time.Duration // maximum pause between two sweeps, used when nothing happens
	Limit    int           // rows to request per page
	Overlap  time.Duration // rows that are late by this at most are found within minutes; others wait for the scan
	Since    time.Time     // how far back to publish a list that was never read; zero means all of it
	// RoundEvery is the time from one scan of the whole list to the next; 0 means as often as its length allows.
	RoundEvery time.Duration
	// Recent is the age up to which rows are read again in each interval, newest first; 0: Overlap, every few intervals,
	// and beyond it the pages with rows that may change.
	Recent time.Duration
	// Pace is how many pages a second are read again on average; 0 means one.
	Pace float64
}

// maxFailures is the number of sweeps in a row that must fail before a sweeper that worked is not ready.
const maxFailures = 3

// Fault returns why the sweeper is not ready, "" if it is. Before its first complete sweep it is not, unless another sweeper leads.
func (s *Sweeper[T]) Fault() string {
	if f := s.fault.Load(); f != nil {
		return f.why
	}
	return s.Name + ": the first sweep has not come through yet"
}

// Upstream is Fault where the list's service is at fault, else "".
func (s *Sweeper[T]) Upstream() string {
	if f := s.fault.Load(); f != nil && f.upstream {
		return f.why
	}
	return ""
}

func (s *Sweeper[T]) setFault(why string, upstream bool) {
	if was := s.fault.Swap(&fault{why, upstream}); why == "" && was != nil && was.why != "" {
		s.Logger.Info().Msg("sweep: works again")
	}
}

// ReadLately reports whether a recent complete reading has shown the rows made at a time. It is safe for concurrent use.
func (s *Sweeper[T]) ReadLately(at time.Time) bool {
	last := s.readLast.Load()
	return last != nil && !at.Before(last.since) && time.Since(last.began) < 2*retry.RoundEvery
}

// Run sweeps until ctx ends, while no other sweeper leads; events under way are finished first. Errors are logged.
func (s *Sweeper[T]) Run(ctx context.Context) {
	s.init()
	defer s.Sink.Resign()
	var err error
	for r := (&run[T]{Sweeper: s}); ctx.Err() == nil; {
		if err = r.standBy(ctx, err); err == nil {
			s.Logger.Info().Msg("sweep: leads")
			s.Leading(true)
			err = r.sweeps(ctx)
			s.Logger.Info().Msg("sweep: standby")
			s.Leading(false)
		}
		if errors.Is(err, ErrReset) {
			s.Sink.Reset()
			r = &run[T]{Sweeper: s}
		}
	}
}

// standBy follows what the leader publishes until nobody leads, and then takes the leadership. After sweeps that failed with
// err it first makes sure that it can read the list.
func (r *run[T]) standBy(ctx context.Context, err error) error {
	unread, failures := err != nil && !errors.Is(err, ErrLed) && !errors.Is(err, ErrReset), 0
	if unread {
		failures = maxFailures
		_ = r.pause(ctx, time.After(r.failed(err, failures)), false)
	}
	for ctx.Err() == nil {
		led, err := r.Sink.Led(ctx)
		if err == nil && (unread || led && r.followed.IsZero()) {
			_, err = r.page(ctx, 1)
			unread = unread && err != nil
		}
		switch {
		case err != nil:
		case !led:
			if err = r.lead(ctx); err == nil {
				return nil
			}
			r.Sink.Resign() // another sweeper may be able to
		default:
			if err = r.follows(ctx); err == nil {
				failures = 0
				r.setFault("", false)
			}
		}
		wait := retry.StandBy
		switch {
		case errors.Is(err, ErrReset):
			return err
		case err != nil && !errors.Is(err, ErrLed) && ctx.Err() == nil:
			failures++
			wait = r.failed(err, failures)
		}
		_ = r.pause(ctx, time.After(wait), false)
	}
	return context.Cause(ctx)
}

// follows learns now and then what the leader published, so that little is left to learn when that is gone.
func (r *run[T]) follows(ctx context.Context) error {
	if time.Since(r.followed) < retry.RoundEvery {
		return nil
	}
	if err := r.readKept(ctx); err != nil {
		return err
	}
	r.followed = time.Now()
	return r.learn(ctx)
}

// sweeps sweeps until ctx ends, another sweeper leads or should lead, or everything must be learned again.
func (r *run[T]) sweeps(ctx context.Context) error {
	failures, period := 0, r.Interval
	for {
		began := time.Now()
		stored, err := r.sweep(ctx)
		if errors.Is(err, ErrReset) || errors.Is(err, ErrLed) || ctx.Err() != nil {
			return cmp.Or(err, context.Cause(ctx))
		}
		var wait time.Duration
		if err != nil {
			if failures++; failures == maxFailures {
				r.Sink.Resign() // another sweeper may be able to
				return err
			}
			wait = r.failed(err, failures)
		} else {
			failures = 0
			r.setFault("", false)
			r.Lag(time.Since(began))
			period = min(max(2*period, retry.SweepMin), r.Interval)
			if stored > 0 {
				period = min(retry.SweepMin, r.Interval)
			}
			if wait = max(0, period-time.Since(began)); !r.firstRead() && r.scan != nil {
				wait = 0
			}
		}
		if stored == 0 { // nothing else shows that another one leads
			if led, err := r.Sink.Led(ctx); err == nil && led {
				return ErrLed
			}
		}
		if err := r.pause(ctx, time.After(wait), true); errors.Is(err, ErrReset) || errors.Is(err, ErrLed) {
			return err
		}
	}
}

// failed logs a failed sweep and returns the pause after it. While the account is refused, each sweep's first read is the
// probe.
func (s *Sweeper[T]) failed(err error, failures int) time.Duration {
	wait, held := max(s.Interval, min(s.Interval<<min(failures-1, 10), s.Policy.Max), retry.Asked(err)), clients.FateOf(err) == clients.Held
	if held {
		wait = max(s.Policy.Max, retry.Asked(err), retry.SweepMin)
	}
	if !held || s.Fault() == "" || time.Since(s.warned) >= retry.WarnAgain {
		s.warned = time.Now()
		s.Logger.Warn().Err(err).Dur("again_in_ms", wait).Msg("sweep: failed")
	}
	if held || s.Fault() != "" || failures >= maxFailures {
		s.say(err)
	}
	return wait
}

// say says why the sweeper is not ready: what its last read, or its sink, came back with.
func (s *Sweeper[T]) say(err error) {
	var e *clients.Error
	why := fmt.Sprintf("no sweep came through lately: %v", err)
	switch {
	case !errors.As(err, &e):
	case e.Fate == clients.Held:
		why = fmt.Sprintf("%s answers %d: credentials or account", s.Name, e.Status)
	default:
		why = s.Name + ": " + why
	}
	s.setFault(why, e != nil)
}
