package programs

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"errand/internal/bus"
	"errand/internal/retry"
	"errand/internal/telemetry"
)

// runtime is what every program needs: a log, a connection, an admin server. close
// releases them in reverse order.
type runtime struct {
	name      string
	log       zerolog.Logger
	metrics   *metrics
	nc        *nats.Conn
	js        jetstream.JetStream
	publisher *bus.Publisher
	tracer    *telemetry.Tracer // nil: there are no traces
	ready     readiness
	rights    rights
	started   time.Time
	read      atomic.Bool // the list that it reads, once at least
	called    bool        // it works only when it is called, which nobody does while it is not ready
	cleanups  []func()
	keptFor   atomic.Int64 // how long events are kept, a time.Duration
	newer     atomic.Bool  // newer programs are being rolled out, see bus.Found

	mu       sync.Mutex
	starting string // what the program still waits for; "" when it is running
}

// start starts the admin server first, so that probes are answered, and then waits for
// NATS. It fails with *Invalid, without JetStream, or when ctx ends first. upstream is the
// address of the service.
func (b *Base) start(ctx context.Context, name, upstream string) (*runtime, error) {
	r, err := b.open(name, upstream)
	if err != nil {
		return nil, err
	}
	if err = bus.AnswerStatus(r.nc, r.status); err == nil {
		err = bus.Up(ctx, r.nc, r.log)
	}
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

// start is Base's, with traces.
func (c *Common) start(ctx context.Context, name, upstream string) (*runtime, error) {
	r, err := c.Base.start(ctx, name, upstream)
	if err != nil {
		return nil, err
	}
	version, _, _ := build()
	if r.tracer, err = c.Tracing.Open(name, version, r.log); err != nil {
		r.close()
		return nil, err
	}
	over, end := context.WithCancel(context.Background())
	end()
	r.cleanups = append(r.cleanups, func() { r.tracer.Close(over) }) // work has sent what there was
	return r, nil
}

// saysWhatStarts logs what somebody who reads the log should know first. No address in it has
// credentials: that of an upstream was refused otherwise. upstream is "" where there is none.
func (r *runtime) saysWhatStarts(nats []string, upstream string) {
	version, revision, goVersion := build()
	line := r.log.With().Str("version", version).Str("revision", revision).Str("go", goVersion).Strs("nats", nats)
	if at, err := url.Parse(upstream); err == nil && at.Host != "" {
		line = line.Str("upstream", at.Host)
	}
	log := line.Logger()
	log.Info().Msg("starting")
}

func (r *runtime) close() {
	for _, v := range slices.Backward(r.cleanups) {
		v()
	}
}

// kept is how long events are kept; 0: for ever.
func (r *runtime) kept() time.Duration { return time.Duration(r.keptFor.Load()) }

func (r *runtime) waitsFor() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.starting
}

// work runs all runs until ctx ends and the requests in flight are settled, or until the
// grace period is over. If one fails, the others are stopped.
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
		go func() { errs <- run(ctx, hard) }() // waited for below
	}
	patience := context.AfterFunc(ctx, func() {
		r.log.Info().Dur("grace", grace).Msg("stopping: what is in flight finishes first")
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
	if r.nc.IsConnected() { // otherwise there is nothing to wait for
		if err := r.nc.FlushTimeout(retry.Flush); err != nil && r.nc.IsConnected() {
			failed = append(failed, fmt.Errorf("nats: flush the last acknowledgements: %w", err))
		}
	}
	sending, sent := context.WithTimeout(hard, retry.SpansSent) // hard ends with the grace period
	r.tracer.Close(sending)
	sent()
	if len(failed) == 0 {
		r.log.Info().Msg("stopped, nothing is left in flight")
	}
	return errors.Join(failed...)
}

var errGrace = errors.New("SHUTDOWN_GRACE ended before everything in flight had finished; requests that had not will be delivered again")
