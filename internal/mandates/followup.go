package mandates

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"errand/internal/history"
	"errand/internal/retry"
	"errand/pkg/clients"
)

// FollowUp looks the events of one kind up again as they age. Every exported field but Back, Idle, Held and Late is required.
type FollowUp struct {
	What   string // is looked up, for the log: "an uncertain enrollment"
	Ages   []time.Duration
	Policy retry.Policy // Max is the pause after the service has not answered
	Logger zerolog.Logger
	// Next returns the first event from a sequence or, where that is 0, a time on. Without a subject it means that there is no
	// such event up to its Sequence, in a stream that was made At. The error is ctx's.
	Next func(ctx context.Context, from uint64, since time.Time) (history.Entry, error)
	// Look looks one up at an age; before: the age before it, 0 at first. looked: the service was asked. Errors: pkg/clients', ErrAgain.
	Look func(ctx context.Context, o history.Entry, before, age time.Duration) (looked bool, err error)
	// Back limits how old events are that are looked up after a start; 0 means no limit.
	Back time.Duration
	// Idle is the shortest pause before more events are asked for; 0 means retry.LookAgain.
	Idle time.Duration
	// Held reports whether the service must not be asked now; nil means that it always may be.
	Held func() bool
	// Late, if set, is called with how late each look was that asked the service.
	Late func(time.Duration)

	answered time.Time // when one was looked up last
}

// ErrAgain means that a look came to nothing, through no fault of the service.
var ErrAgain = errors.New("mandates: it must be looked up again")

// Again reports whether a look at the same age is to be made again after an error.
func Again(err error) bool {
	fate := clients.FateOf(err)
	return fate == clients.Busy || fate == clients.Held || errors.Is(err, ErrAgain)
}

// queue holds the looks at one age. They are due in the order of the stream.
type queue struct {
	before, age, next time.Duration // next is the age after it; 0 for the last
	from              uint64        // sequence after the last event taken
	since             time.Time     // where the queue begins, then when the newest event taken was stored
	asked             time.Time     // when the service was asked last
	tries             int           // failed looks at the current event
	failed            time.Time     // when the first of them failed
	open              history.Entry // the current event; zero: ask for the next one
	due               time.Time     // when to look, or to ask
}

// Run works until ctx ends. The next process looks again at what is open then.
func (f *FollowUp) Run(ctx context.Context) {
	began := time.Now()
	queues := make([]*queue, len(f.Ages))
	for i, age := range f.Ages {
		queues[i] = &queue{age: age, since: time.Unix(0, 0), due: began}
		if i > 0 {
			queues[i].before = f.Ages[i-1]
		}
		if i+1 < len(f.Ages) { // older events were looked at, or are at the next age
			queues[i].next, queues[i].since = f.Ages[i+1], began.Add(-f.Ages[i+1])
		}
		if oldest := began.Add(-f.Back); f.Back > 0 && queues[i].since.Before(oldest) {
			queues[i].since = oldest
		}
	}
	said, wait := "", time.Duration(0)
	for {
		q := first(queues)
		if !retry.Pause(ctx, max(wait, time.Until(q.due))) {
			return
		}
		var err error
		wait, err = f.step(ctx, q)
		if ctx.Err() != nil {
			return
		}
		if err != nil && err.Error() != said {
			f.Logger.Warn().Err(err).Msg(f.What + " could not be looked up")
		}
		if wait > 0 { // without a look nothing is known of the service
			said = fmt.Sprint(err)
		}
	}
}

// first returns the queue to work on. Due ones take turns: a backlog at one age, or a failing event, delays no other.
func first(queues []*queue) *queue {
	now := time.Now()
	return slices.MinFunc(queues, func(a, b *queue) int {
		if a.due.After(now) || b.due.After(now) {
			return a.due.Compare(b.due)
		}
		return cmp.Or(a.asked.Compare(b.asked), a.due.Compare(b.due))
	})
}

// maxTries is how often an event is tried that cannot be looked up while others can.
const maxTries = 3

// step takes a queue's next event or looks at it. It returns how long to leave the service alone.
func (f *FollowUp) step(ctx context.Context, q *queue) (time.Duration, error) {
	now := time.Now()
	switch {
	case q.open.Subject == "":
		open, err := f.Next(ctx, q.from, q.since)
		if err == nil && open.Subject == "" && q.from > 0 && (open.Sequence+1 < q.from || open.At.After(q.since)) { // it was made again
			open, err = f.Next(ctx, 0, q.since.Add(1))
		}
		if err != nil {
			return 0, err
		}
		if open.Subject == "" {
			if open.Sequence > 0 { // what lies before need not be read again
				q.from = open.Sequence + 1
			}
			q.due = now.Add(max(q.age, cmp.Or(f.Idle, retry.LookAgain))) // an event that comes now is not due earlier
			return 0, nil
		}
		if q.from == 0 || open.At.After(q.since) {
			q.since = open.At
		}
		q.open, q.from, q.due, q.tries = open, open.Sequence+1, open.At.Add(q.age), 0
		return 0, nil
	case q.next > 0 && now.Sub(q.open.At) >= q.next: // late: the next age is due as well
		q.open = history.Entry{}
		return 0, nil
	case f.Held != nil && f.Held():
		return max(f.Policy.Max, retry.ResolvePace), nil
	}
	looked, err := f.Look(ctx, q.open, q.before, q.age)
	if looked {
		q.asked = time.Now()
	}
	if Again(err) { // nothing can be looked up
		if q.tries++; q.tries == 1 {
			q.failed = now
		}
		if q.tries >= maxTries && f.answered.After(q.failed) { // the fault is this event's
			q.open = history.Entry{}
		}
		return max(f.Policy.Max, retry.ResolvePace, retry.Asked(err)), err
	}
	if looked && err == nil {
		f.answered = time.Now()
	}
	if looked && f.Late != nil {
		f.Late(now.Sub(q.due))
	}
	q.open = history.Entry{} // an unknown fate or a refusal may be this event's fault: wait for its next age
	_, asked := errors.AsType[*clients.Error](err)
	switch {
	case asked:
		return max(f.Policy.Max, retry.ResolvePace), err
	case looked:
		return retry.ResolvePace, err
	}
	return 0, err
}
