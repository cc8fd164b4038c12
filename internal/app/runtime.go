package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"errand/internal/bus"
	"errand/internal/consumer"
)

// runtime is what every program stands on: a log, a connection, an admin server.
// close undoes it, last first.
type runtime struct {
	name      string
	log       zerolog.Logger
	metrics   *metrics
	nc        *nats.Conn
	js        jetstream.JetStream
	publisher *bus.Publisher
	ready     readiness
	cleanups  []func()

	mu       sync.Mutex
	starting string // what the program still waits for; "" once it works
}

// start brings up the admin server first, so that probes are answered, then waits
// for NATS. Errors: *Invalid, no JetStream, or ctx ended first.
func (c *Common) start(ctx context.Context, name string) (*runtime, error) {
	r := &runtime{name: name, log: c.logger().With().Str("program", name).Logger(), metrics: newMetrics(), starting: "starting: waiting for NATS"}
	r.ready.add(r.waitsFor)
	r.metrics.of(&r.ready)
	stop, err := serveAdmin(c.AdminAddr, &r.ready, r.metrics.registry, r.log)
	if err != nil {
		return nil, err
	}
	r.cleanups = append(r.cleanups, stop)
	if r.nc, err = bus.Connect(c.NATS, name, r.log); err != nil {
		r.close()
		return nil, &Invalid{"NATS", err.Error()}
	}
	r.cleanups = append(r.cleanups, r.nc.Close)
	r.ready.add(func() string { return bus.Fault(r.nc) })
	err = bus.Up(ctx, r.nc, r.log)
	if err == nil {
		r.js, err = bus.JetStream(ctx, r.nc)
	}
	if err == nil {
		r.publisher, err = bus.NewPublisher(r.nc)
	}
	if err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

func (r *runtime) close() {
	for _, v := range slices.Backward(r.cleanups) {
		v()
	}
}

func (r *runtime) waitsFor() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.starting
}

// watch makes a hold show in readiness.
func (r *runtime) watch(hold *consumer.Hold) {
	r.ready.add(func() string {
		if why := hold.Why(); why != "" {
			return "held: " + why
		}
		return ""
	})
}

// work runs all of runs until ctx ends and what is in hand is settled, or until the
// grace is over. A part that fails ends the others.
func (r *runtime) work(ctx context.Context, grace time.Duration, runs ...func(ctx, hard context.Context) error) error {
	r.mu.Lock()
	r.starting = ""
	r.mu.Unlock()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	hard, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	r.log.Info().Msg("ready")
	errs := make(chan error, len(runs))
	for _, run := range runs {
		go func() { errs <- run(ctx, hard) }() // each is waited for below
	}
	patience := context.AfterFunc(ctx, func() {
		r.log.Info().Dur("grace", grace).Msg("stopping: no more work is taken, what is in hand ends")
		timer := time.AfterFunc(grace, func() { end(errGrace) })
		context.AfterFunc(hard, func() { timer.Stop() })
	})
	defer patience()
	var failed []error
	for range runs {
		if err := <-errs; err != nil {
			failed = append(failed, err)
			stop(err)
		}
	}
	if errors.Is(context.Cause(hard), errGrace) {
		failed = append(failed, errGrace)
	}
	if r.nc.IsConnected() { // else there is nobody to wait for
		if err := r.nc.FlushTimeout(2 * time.Second); err != nil && r.nc.IsConnected() {
			failed = append(failed, fmt.Errorf("nats: flush the last acknowledgements: %w", err))
		}
	}
	if len(failed) == 0 {
		r.log.Info().Msg("stopped, everything in hand is settled")
	}
	return errors.Join(failed...)
}

var errGrace = errors.New("SHUTDOWN_GRACE was over before everything in hand was settled; what was left is delivered again")
