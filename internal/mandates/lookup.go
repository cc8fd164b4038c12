package mandates

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"errand/internal/history"
	"errand/internal/retry"
	"errand/pkg/clients"
)

// Looks are those at the events of one kind. Every exported field but Back, Held and Late is required.
type Looks struct {
	What   string // is looked up, for people: "an uncertain enrollment"
	Ages   []time.Duration
	Policy retry.Policy // Max is the pause after the service has not answered
	Logger zerolog.Logger
	// Next gives the first event at or behind a sequence or, where that is 0, a time; a zero
	// one when there is none. The error is the context's.
	Next func(ctx context.Context, from uint64, since time.Time) (history.Pending, error)
	// Look looks one up at one of the ages, the last one before which was before (0: there
	// was none). looked: the service was asked. Errors of the service are those of pkg/clients.
	Look func(ctx context.Context, o history.Pending, before, age time.Duration) (looked bool, err error)
	// Back is how old what is found at the start is at most; 0: as old as any.
	Back time.Duration
	// Held reports whether the service is not to be asked now; nil: it never is.
	Held func() bool
	// Late learns how late each look was that asked the service; nil: nobody does.
	Late func(time.Duration)

	answered time.Time // when one was looked up last
}

// queue holds the looks at one age. The stream is in the order in which they are due.
type queue struct {
	before, age, next time.Duration   // next is the age of the look after it; 0: there is none
	from              uint64          // sequence behind the last one taken
	since             time.Time       // where it begins, and then the newest one taken
	asked             time.Time       // when the service was asked last
	tries             int             // how often the one to look at could not be looked up
	failed            time.Time       // since when
	open              history.Pending // the one to look at; zero: to be asked for
	due               time.Time       // when to look, or to ask
}

// Run works until ctx ends. What is open then is looked at again by the next program.
func (l *Looks) Run(ctx context.Context) {
	began := time.Now()
	queues := make([]*queue, len(l.Ages))
	for i, age := range l.Ages {
		queues[i] = &queue{age: age, since: time.Unix(0, 0), due: began}
		if i > 0 {
			queues[i].before = l.Ages[i-1]
		}
		if i+1 < len(l.Ages) { // what is older was looked at, or is at the next age
			queues[i].next, queues[i].since = l.Ages[i+1], began.Add(-l.Ages[i+1])
		}
		if oldest := began.Add(-l.Back); l.Back > 0 && queues[i].since.Before(oldest) {
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
		wait, err = l.step(ctx, q)
		if ctx.Err() != nil {
			return
		}
		now := ""
		if err != nil {
			now = err.Error()
		}
		if now != "" && now != said {
			l.Logger.Warn().Err(err).Msg(l.What + " could not be looked up")
		}
		if wait > 0 { // a step without a look says nothing of the service
			said = now
		}
	}
}

// first is the queue whose turn it is: of those that are due, each has its own, so that many that
// are late at one age, or one that cannot be looked up, keep no other waiting.
func first(queues []*queue) *queue {
	now := time.Now()
	return slices.MinFunc(queues, func(a, b *queue) int {
		if a.due.After(now) || b.due.After(now) {
			return a.due.Compare(b.due)
		}
		return cmp.Or(a.asked.Compare(b.asked), a.due.Compare(b.due))
	})
}

// maxTries is how often one is tried that cannot be looked up while others can.
const maxTries = 3

// step asks for the next one of a queue or looks at it, and says how long to leave the
// service alone then.
func (l *Looks) step(ctx context.Context, q *queue) (time.Duration, error) {
	now := time.Now()
	switch {
	case q.open.ID == "":
		open, err := l.Next(ctx, q.from, q.since)
		if err == nil && open.ID == "" && q.from > 0 { // there is one if the stream was made again
			open, err = l.Next(ctx, 0, q.since.Add(1))
		}
		if err != nil {
			return 0, err
		}
		if open.ID == "" {
			q.due = now.Add(max(q.age, retry.LookAgain)) // what comes now is not due before
			return 0, nil
		}
		if q.from == 0 || open.At.After(q.since) {
			q.since = open.At
		}
		q.open, q.from, q.due, q.tries = open, open.Sequence+1, open.At.Add(q.age), 0
		return 0, nil
	case q.next > 0 && now.Sub(q.open.At) >= q.next: // late; the next age is due as well
		q.open = history.Pending{}
		return 0, nil
	case l.Held != nil && l.Held():
		return max(l.Policy.Max, retry.ResolvePace), nil
	}
	looked, err := l.Look(ctx, q.open, q.before, q.age)
	if looked {
		q.asked = time.Now()
	}
	failed, ok := errors.AsType[*clients.Error](err)
	if ok && (failed.Fate == clients.Busy || failed.Fate == clients.Held) { // nobody can be looked up
		if q.tries++; q.tries == 1 {
			q.failed = now
		}
		if q.tries >= maxTries && l.answered.After(q.failed) { // it is this one's own
			q.open = history.Pending{}
		}
		return max(l.Policy.Max, retry.ResolvePace, min(failed.RetryAfter, retry.RetryAfterMax)), err
	}
	if looked && err == nil {
		l.answered = time.Now()
	}
	if looked && l.Late != nil {
		l.Late(now.Sub(q.due))
	}
	q.open = history.Pending{} // an unknown fate or a refusal may be this one's own: it waits for its next age
	switch {
	case ok:
		return max(l.Policy.Max, retry.ResolvePace), err
	case looked:
		return retry.ResolvePace, err
	}
	return 0, err
}
