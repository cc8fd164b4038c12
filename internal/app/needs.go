package app

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/retry"
)

// askEvery is the pause between two looks at what a program needs, and how long the
// servers may take to answer one.
const askEvery = 5 * time.Second

// needs checks that what the program needs of NATS is there, and goes on asking: what
// goes later, or does not store events, shows in readiness. An idle program would not
// notice, and a busy one waits in silence until it can store again.
func (r *runtime) needs(ctx context.Context, queues []bus.Queue, streams ...string) (map[string]jetstream.Consumer, error) {
	found, err := bus.Check(ctx, r.js, queues, streams...)
	if err != nil {
		return nil, err
	}
	r.metrics.queues(found, queues)
	var fault atomic.Pointer[string]
	fault.Store(new(string))
	r.ready.add(func() string { return *fault.Load() })
	asking, stop := context.WithCancel(context.WithoutCancel(ctx))
	var asker sync.WaitGroup
	asker.Go(func() {
		for retry.Pause(asking, askEvery) {
			said, now := *fault.Load(), r.missing(asking, queues, streams)
			switch fault.Store(&now); {
			case now == said || asking.Err() != nil:
			case now == "":
				r.log.Info().Msg("what the program needs of NATS is there again")
			default:
				r.log.Warn().Str("why", now).Msg("not ready: something is amiss in NATS")
			}
		}
	})
	r.cleanups = append(r.cleanups, func() { stop(); asker.Wait() })
	return found, nil
}

// missing says what is amiss now; "" when nothing is.
func (r *runtime) missing(ctx context.Context, queues []bus.Queue, streams []string) string {
	ctx, done := context.WithTimeout(ctx, askEvery)
	defer done()
	found, err := bus.Check(ctx, r.js, queues, streams...)
	r.metrics.queues(found, queues)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "JetStream does not answer: " + err.Error()
	case err != nil:
		return err.Error()
	}
	return r.publisher.Fault()
}
