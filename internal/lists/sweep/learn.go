package sweep

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"errand/internal/retry"
)

// maxTries is how often other sweepers may take the leadership before a sweep fails.
const maxTries = 20

// again calls store until no other sweeper is in its way.
func (p *publisher[T]) again(ctx context.Context, store func(context.Context) error) error {
	for try := 1; ; try++ {
		err := store(context.WithoutCancel(ctx))
		if err == nil {
			return nil
		}
		if err := p.relearn(ctx, err, try); err != nil {
			return err
		}
	}
}

// relearn learns what another sweeper published since it took the leadership. Its error: publishing again would be useless.
func (p *publisher[T]) relearn(ctx context.Context, err error, try int) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil && !errors.Is(err, ErrBehind), try == maxTries:
		return fmt.Errorf("sweep: publish: %w", err)
	}
	// Two sweepers must not take the leadership from each other for ever.
	retry.Pause(ctx, rand.N(time.Duration(min(try, 10))*retry.RelearnStep))
	return p.learn(ctx, time.Time{}, true)
}

// learn learns what was published. After the last mark it may be in front of rows that were not; others: note the unknown.
func (p *publisher[T]) learn(ctx context.Context, mark time.Time, others bool) error {
	if err := p.readKept(ctx); err != nil {
		return err
	}
	err := p.sink.Lead(ctx)
	if errors.Is(err, ErrLed) {
		err = p.sink.Lead(ctx)
	}
	if err != nil {
		return fmt.Errorf("sweep: take the leadership: %w", err)
	}
	p.learned++
	for s, err := range p.sink.Learn(ctx) {
		if err != nil {
			return fmt.Errorf("sweep: learn published events: %w", err)
		}
		if others && !p.known.has(s.ID) {
			p.others[s.ID.short()] = p.learned
		}
		if s.At.Truncate(time.Millisecond).After(mark) && !p.known.has(s.ID) { // as marks are written
			p.believed = later(p.believed, s.At)
			p.doubt(s.ID)
		}
		p.known.add(s.ID, s.At)
	}
	return nil
}

// readKept asks what is kept of the events, before anything is stored, and forgets what is not.
// After a long absence nothing is kept, and what came since the last event is still to be
// published: the events that are stored meanwhile do not change that.
func (p *publisher[T]) readKept(ctx context.Context) error {
	now := time.Now()
	kept, err := p.sink.Kept(ctx)
	if err != nil {
		return fmt.Errorf("sweep: read since when events are kept: %w", err)
	}
	if !p.kept.IsZero() {
		kept = earlier(kept, p.kept.Add(now.Sub(p.keptAt)))
	}
	p.kept, p.keptAt = kept, now
	p.known.drop(kept, now)
	return nil
}
