package act

import (
	"context"
	"fmt"
	"time"

	"errand/internal/bus"
)

// MaxPause is the longest pause: a request may wait no longer than that.
const MaxPause = 7 * 24 * time.Hour

// Pause has a queue give out nothing for a while: requests are taken in and
// wait, what is in flight goes on. A queue that is paused already is paused until the new end, if that is later.
// It returns the end as the servers have it. Errors: as for Do; jetstream.ErrConsumerNotFound; ErrNothingDone.
func (p Person) Pause(ctx context.Context, q bus.Queue, how time.Duration, why string) (until time.Time, err error) {
	if q.Name == "" || how <= 0 || how > MaxPause {
		return until, fmt.Errorf("act: pause %q for %v: no such queue, or no such time", q, how)
	}
	until = time.Now().Add(how)
	now, end, err := p.queue(ctx, q)
	if err != nil {
		return until, err
	}
	if end.After(until) { // somebody has a reason for it, which stays the last that is recorded
		return until, refuse("%s is %s, which is longer; to shorten it, resume the queue first", q, now)
	}
	pause := Act{Verb: Pause, Operation: q.Operation(), Target: q.Name, Why: why, Plan: now + "; pause it until " + at(until)}
	_, err = p.Do(ctx, pause, func(ctx context.Context) (string, error) {
		answer, err := p.JS.PauseConsumer(ctx, q.Stream, q.Name, until)
		if err != nil {
			return "", fmt.Errorf("nats: pause %s: %w", q.Name, err)
		}
		if !answer.Paused {
			return "", fmt.Errorf("%s is not paused now: by the servers' clock %s has passed; is this machine's right?", q, at(until))
		}
		until = answer.PauseUntil
		return "paused until " + at(until), nil
	})
	return until, err
}

// Resume ends a pause. Errors: as for Do; ErrNothingDone when there is none.
func (p Person) Resume(ctx context.Context, q bus.Queue, why string) error {
	now, _, err := p.queue(ctx, q)
	if err != nil {
		return err
	}
	resume := Act{Verb: Resume, Operation: q.Operation(), Target: q.Name, Why: why, Plan: now + "; end the pause"}
	_, err = p.Do(ctx, resume, func(ctx context.Context) (string, error) {
		if now == notPaused {
			return "", fmt.Errorf("%w: %s is not paused", ErrNothingDone, q)
		}
		if _, err := p.JS.ResumeConsumer(ctx, q.Stream, q.Name); err != nil {
			return "", fmt.Errorf("nats: resume %s: %w", q.Name, err)
		}
		return "resumed", nil
	})
	return err
}

const notPaused = "not paused"

// queue says whether a queue is paused, and until when.
func (p Person) queue(ctx context.Context, q bus.Queue) (says string, until time.Time, err error) {
	c, err := p.JS.Consumer(ctx, q.Stream, q.Name)
	if err != nil {
		return "", until, fmt.Errorf("queue %s: %w", q.Name, err)
	}
	if info := c.CachedInfo(); info.Paused {
		until = *info.Config.PauseUntil // PauseRemaining is that of when the server answered
		return "paused until " + at(until), until, nil
	}
	return notPaused, until, nil
}

func at(t time.Time) string { return t.UTC().Truncate(time.Second).Format(time.RFC3339) }
