package consumer

import (
	"context"
	"sync/atomic"
	"time"

	"errand/internal/retry"
)

// ahead is what a lane has taken before a worker is free: what its workers begin within about aheadFor, so that a pull brings many
// requests and no worker waits for it. Nothing was stored for them, and they have no lease: what no worker has begun after
// giveBackAfter goes back to the queue, for other replicas. Where the program is killed, the queue delivers them again after AckWait.
type ahead struct {
	waiting chan waiting
	drained chan struct{} // is sent to when half of what may wait has begun
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
	giveBackAfter = time.Second
)

func newAhead(whole int) *ahead {
	return &ahead{waiting: make(chan waiting, 2*whole), drained: make(chan struct{}, 1), whole: whole}
}

// most waits until half of what may wait has begun, and returns how many more may.
func (a *ahead) most(ctx context.Context) int {
	if now := time.Now(); now.Sub(a.at) >= aheadFor {
		begun := a.begun.Load()
		a.allowed = int(min(int64(a.whole), (begun-a.counted)*int64(aheadFor)/int64(now.Sub(a.at))))
		a.counted, a.at = begun, now
	}
	for len(a.waiting) > a.allowed/2 {
		select {
		case <-a.drained:
		case <-ctx.Done():
			return 0
		}
	}
	return a.allowed - len(a.waiting)
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
	ctx, stop := context.WithDeadline(context.Background(), since.Add(giveBackAfter))
	defer stop()
	return l.places.Take(ctx) == nil
}
