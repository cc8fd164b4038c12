package consumer

import (
	"context"
	"sync/atomic"
	"time"

	"errand/internal/retry"
)

// ahead is what a lane has taken before a worker is free: what its workers begin within about aheadFor, so that a pull brings many
// requests and no worker waits for it. Nothing was stored for them, and they have no lease: what no worker has begun after
// giveBackAfter, or a third of a short AckWait, goes back to the queue, for other replicas. Where the program is killed, the queue
// delivers them again after AckWait.
type ahead struct {
	waiting chan waiting
	left    atomic.Int64  // that have no place in flight yet
	drained chan struct{} // is sent to when there is one less
	begun   atomic.Int64  // requests of the lane

	// Only the taker whose turn it is reads and writes these.
	whole   int   // at most
	allowed int   // may wait by now
	counted int64 // of begun
	at      time.Time
}

type waiting struct {
	taken
	since time.Time
}

const (
	aheadFor      = 10 * time.Millisecond
	countedFor    = 100 * time.Millisecond // longer: workers that begin at once say nothing of how soon they are free
	giveBackAfter = time.Second
)

func newAhead(whole int) *ahead {
	return &ahead{waiting: make(chan waiting, 2*whole), drained: make(chan struct{}, 1), whole: whole}
}

// most waits until half of what may wait has begun, and returns how many more may.
func (a *ahead) most(ctx context.Context) int {
	if now := time.Now(); now.Sub(a.at) >= countedFor {
		begun := a.begun.Load()
		a.allowed = int(min(int64(a.whole), (begun-a.counted)*int64(aheadFor)/int64(now.Sub(a.at))))
		a.counted, a.at = begun, now
	}
	return max(a.allowed-a.drain(ctx, a.allowed/2), 0)
}

// drain waits until no more than some are left, and returns how many are.
func (a *ahead) drain(ctx context.Context, some int) int {
	for int(a.left.Load()) > some && ctx.Err() == nil {
		select {
		case <-a.drained:
		case <-ctx.Done():
		}
	}
	return int(a.left.Load())
}

// add has a request wait.
func (a *ahead) add(t taken) {
	a.left.Add(1)
	a.waiting <- waiting{t, time.Now()}
}

// pass passes what waits to workers, as the lane has places in flight.
func (l *lane) pass(work chan<- taken) {
	for w := range l.ahead.waiting {
		if l.place(w.since) {
			work <- w.taken
		} else {
			if isLarge(w.Request) {
				l.large.waiting.Done()
			}
			_ = w.NakWithDelay(retry.PullExpiry) // or one of our own pulls has it again
		}
		l.ahead.left.Add(-1)
		select {
		case l.ahead.drained <- struct{}{}:
		default:
		}
	}
}

// place takes a place in flight for what waits since a time, and reports whether there was one in time.
func (l *lane) place(since time.Time) bool {
	if l.places.Try() {
		return true
	}
	ctx, stop := context.WithDeadline(context.Background(), since.Add(min(giveBackAfter, l.queue.AckWait()/3)))
	defer stop()
	return l.places.Take(ctx) == nil
}
