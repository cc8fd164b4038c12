package programs

import (
	"context"
	"errors"
	"time"

	"errand/internal/bus"
	"errand/internal/requests/admission"
	"errand/internal/requests/attempt"
	"errand/internal/requests/consumer"
	"errand/internal/requests/hold"
	"errand/internal/retry"
	"errand/internal/throttle"
	"errand/pkg/messages"
)

// Requests is the configuration that the two consumers of requests share.
type Requests struct {
	Concurrency int           `env:"CONCURRENCY" default:"64" help:"Calls under way at once, all operations together, at least 2. Up to a quarter more requests (at least one a lane) may be in flight." group:"program"`
	Lanes       Lanes         `env:"LANES" placeholder:"default=4,bulk=1" help:"Lanes of requests and their weights: where requests of several wait, calls are made in this proportion. Declare them with errand provision --lanes, too; others that it has declared have weight 1. Default: one lane." group:"program"`
	GiveUpAfter time.Duration `env:"GIVE_UP_AFTER" default:"24h" help:"How long after publishing a request is retried, unless it has its own give_up_at; at most 7 days, and a day less than events are kept." group:"program"`
}

func (q *Requests) validate() error {
	return errors.Join(
		invalidIf(q.Concurrency < 2 || q.Concurrency > 10_000, "CONCURRENCY", "must be 2 to 10000: reads and writes need one each"),
		invalidIf(len(q.Lanes) >= q.Concurrency, "CONCURRENCY", "must be more than the number of LANES: each keeps a call"),
		invalidIf(q.GiveUpAfter <= 0, "GIVE_UP_AFTER", "must be positive (for example 24h)"))
}

// caller is what all calls of a program share.
func (q *Requests) caller(ctx context.Context, c *Common, limit *throttle.Limit) *attempt.Caller {
	caller := &attempt.Caller{Policy: c.policy(), Timeout: c.UpstreamTimeout, Stop: ctx.Done(),
		Slots: admission.NewSlots(q.Concurrency, q.Lanes...)}
	if limit != nil {
		caller.Throttle, caller.Owe = limit.Wait, limit.Owe
	}
	if limit != nil && len(q.Lanes) > 1 {
		turn := admission.NewTurn(1+int(max(c.Rate, c.FleetRate)*retry.RateSlice.Seconds()), q.Lanes...)
		caller.Turn = &turn
	}
	return caller
}

// settings are what the consumers of a program share. In addition to the requests that may be calling,
// a quarter more may be reading or storing events, and at least one for each other queue: an idle one keeps a place.
func (q *Requests) settings(r *runtime, store bus.EventStore) consumer.Settings {
	places := admission.NewSlots(q.Concurrency+max(q.Concurrency/4, len(q.Lanes), 1), q.Lanes...)
	return consumer.Settings{Log: countingLog{r.tracer.Log(store), r.metrics.requests}, Dead: r.publisher,
		Later: r.publisher, InFlight: places, GiveUpAfter: q.GiveUpAfter,
		Kept: r.kept, Newer: r.newer.Load, Logger: r.log,
		Observer: consumer.Observer{Settled: r.metrics.requests.settled, Panicked: r.metrics.requests.panicked, Tracer: r.tracer}}
}

// schedules puts scheduled requests into their queue.
func (r *runtime) schedules(found bus.Found, of bus.Queue) func(ctx, hard context.Context) error {
	return bus.Schedules{Publisher: r.publisher, Queue: r.pull(found.Queues[of.Name]), Logger: r.log}.Run
}

// hold makes the circuit breaker of one operation, and adds it to readiness and metrics.
func (r *runtime) hold(op messages.Operation, service string, interval time.Duration) *hold.Hold {
	h := &hold.Hold{Service: service, Interval: interval, Log: r.log}
	r.ready.addHold(op, h)
	r.ready.note(h.Doubt)
	r.metrics.ofHold(op, h)
	return h
}

// withSlot makes a probe's read take a slot like every other call.
func withSlot(slots admission.Slots, read func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := slots.Take(ctx); err != nil {
			return err
		}
		defer slots.Free()
		return read(ctx)
	}
}
