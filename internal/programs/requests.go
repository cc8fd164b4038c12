package programs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/requests/admission"
	"errand/internal/requests/attempt"
	"errand/internal/requests/consumer"
	"errand/internal/requests/hold"
	"errand/internal/retry"
	"errand/internal/throttle"
	"errand/internal/wire"
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

// Lanes are names and weights of lanes; messages.DefaultLane is the first if there are others.
type Lanes []admission.Lane

const maxLaneWeight = 1000

// UnmarshalText reads lanes separated by commas, each with =WEIGHT or of weight 1.
func (l *Lanes) UnmarshalText(text []byte) error {
	lanes := Lanes{{Name: messages.DefaultLane, Weight: 1}}
	seen := map[string]bool{}
	for part := range strings.SplitSeq(string(text), ",") {
		name, weight, weighted := strings.Cut(strings.TrimSpace(part), "=")
		n, err := strconv.Atoi(weight)
		if !weighted {
			n, err = 1, nil
		}
		switch {
		case !wire.IsLane(name):
			return fmt.Errorf("must be like default=4,bulk=1, each name up to 32 of a to z, 0 to 9 and -, got %q", part)
		case seen[name]:
			return fmt.Errorf("must have each lane once, got %q", text)
		case err != nil || n < 1 || n > maxLaneWeight:
			return fmt.Errorf("must have weights of 1 to %d, got %q", maxLaneWeight, part)
		case name == messages.DefaultLane:
			lanes[0].Weight = n
		default:
			lanes = append(lanes, admission.Lane{Name: name, Weight: n})
		}
		seen[name] = true
	}
	*l = lanes
	return nil
}

// Names are the lanes beside the default one.
func (l Lanes) Names() (names []string) {
	for _, lane := range l {
		if lane.Name != messages.DefaultLane {
			names = append(names, lane.Name)
		}
	}
	return names
}

// with adds the lanes whose queues were found, with weight 1: no request waits for a program that does not know its lane.
func (l Lanes) with(found bus.Found) Lanes {
	for _, q := range found.All {
		if name := q.Lane(); name != "" && !slices.Contains(l.Names(), name) {
			if len(l) == 0 {
				l = Lanes{{Name: messages.DefaultLane, Weight: 1}}
			}
			l = append(slices.Clip(l), admission.Lane{Name: name, Weight: 1})
		}
	}
	return l
}

// pulls take requests of all lanes of a queue.
func (r *runtime) pulls(found bus.Found, of bus.Queue) (first consumer.Queue, lanes []consumer.Lane) {
	for _, q := range found.All {
		if q.Lane() != "" && q == of.In(q.Lane()) {
			lanes = append(lanes, consumer.Lane{Name: q.Lane(), Queue: r.pull(found.Queues[q.Name])})
		}
	}
	return r.pull(found.Queues[of.Name]), lanes
}

func (r *runtime) pull(queue jetstream.Consumer) *bus.Pull {
	p := bus.NewPull(r.nc, queue)
	p.Idle = r.idle
	return p
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

// padding is heap that is never touched, so that it takes no memory. The garbage collector waits for the heap to double: where requests
// are small it runs half as often, for as many bytes more.
func padding() []byte { return make([]byte, 4<<20) }

// settings are what the consumers of a program share. In addition to the requests that may be calling,
// a quarter more may be reading or storing events, and at least one for each other queue: an idle one keeps a place.
func (q *Requests) settings(r *runtime, store bus.EventStore) consumer.Settings {
	places := admission.NewSlots(q.Concurrency+max(q.Concurrency/4, len(q.Lanes), 1), q.Lanes...)
	return consumer.Settings{Log: countingLog{r.tracer.Log(store), r.metrics.requests}, Dead: r.publisher.StoreDeadLetter,
		Later: r.publisher.Schedule, InFlight: places, GiveUpAfter: q.GiveUpAfter, Kept: r.kept, Newer: r.newer.Load, Logger: r.log,
		Settled: r.metrics.requests.settled, Panicked: r.metrics.requests.panicked, Tracer: r.tracer}
}

// schedules puts scheduled requests into their queue.
func (r *runtime) schedules(found bus.Found, of bus.Queue) func(ctx, hard context.Context) error {
	return bus.Schedules{Publisher: r.publisher, Queue: r.pull(found.Queues[of.Name]), Logger: r.log}.Run
}

// hold makes the circuit breaker of one operation, and adds it to readiness and metrics.
func (r *runtime) hold(op messages.Operation, service string, interval time.Duration) *hold.Hold {
	h := &hold.Hold{Service: service, Interval: interval, Log: r.log}
	r.ready.holds.add(operationHold{op, h})
	r.ready.notes.add(h.Doubt)
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
