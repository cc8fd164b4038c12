package programs

import (
	"cmp"
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
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"errand/internal/bus"
	"errand/internal/retry"
	"errand/internal/telemetry"
)

// runtime is what every program needs: a log, an admin server, a connection. close releases them in reverse order.
type runtime struct {
	name        string
	started     time.Time
	log         zerolog.Logger
	metrics     *metrics
	ready       readiness
	nc          *nats.Conn
	js          jetstream.JetStream
	publisher   *bus.Publisher
	tracer      *telemetry.Tracer // nil without traces
	cleanups    []func()
	idle        time.Duration // Base.IdleEvery
	suppressFor atomic.Int64  // seconds that a bounce counts for, once they are known; 0: none does
	natsCheck
}

// natsCheck is what checks of NATS find and go by.
type natsCheck struct {
	every    time.Duration
	rights   rights
	onDemand bool         // the program works only when it is called, which nobody does while it is not ready
	keptFor  atomic.Int64 // how long events are kept, a time.Duration; 0 for ever
	newer    atomic.Bool  // newer programs are being rolled out, see bus.Found

	strandings map[string]stranding // by queue
	taken      []bus.Queue          // of all lanes that there were when the program started
}

func (n *natsCheck) kept() time.Duration { return time.Duration(n.keptFor.Load()) }

// start starts the admin server first, so that probes are answered, and then waits for NATS. It fails with *Invalid,
// without JetStream, or when ctx ends first. upstream is the address of the service.
func (b *Base) start(ctx context.Context, name, upstream string) (*runtime, error) {
	r, err := b.open(name, upstream)
	if err != nil {
		return nil, err
	}
	if r.publisher, err = bus.NewPublisher(r.nc); err == nil { // status asks for its faults
		err = bus.AnswerStatus(r.nc, name, r.status)
	}
	if err == nil {
		err = bus.Up(ctx, r.nc, r.log)
	}
	if err == nil {
		r.js, err = bus.JetStream(ctx, r.nc)
	}
	if err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

// start is Base's, with traces, queues and streams, and the stream that FLEET_RATE needs.
func (c *Common) start(ctx context.Context, name, upstream string, queues []bus.Queue, streams ...string,
) (r *runtime, found bus.Found, err error) {
	if r, err = c.Base.start(ctx, name, upstream); err != nil {
		return nil, found, err
	}
	if r.tracer, err = c.Tracing.Open(name, Version(), r.log); err == nil {
		over, end := context.WithCancel(context.Background())
		end()
		r.cleanups = append(r.cleanups, func() { r.tracer.Close(over) }) // work has sent what there was
		if c.FleetRate > 0 {
			streams = append(streams, bus.RateLeases)
		}
		found, err = r.check(ctx, queues, streams...)
	}
	if err != nil {
		r.close()
	}
	return r, found, err
}

// open logs what starts, starts the admin server and connects; it does not wait for NATS.
func (b *Base) open(name, upstream string) (*runtime, error) {
	r := &runtime{name: name, started: time.Now(), log: b.logger().With().Str("program", name).Logger(), metrics: newMetrics(),
		idle: b.IdleEvery, natsCheck: natsCheck{onDemand: name == bus.CallbackReceiver, every: cmp.Or(b.IdleEvery, retry.NATSCheck)}}
	r.logStart(b.NATS.Servers(), upstream)
	for _, doubt := range b.doubts {
		r.log.Warn().Str("variable", doubt.variable).Str("meant", doubt.meant).
			Msg("no setting has the name of this variable; was another one meant?")
	}
	r.ready.starting.Store("starting: waiting for NATS")
	r.metrics.gauge("errand_ready", "1 while the program can work; /readyz says why it cannot.", nil,
		func() float64 { return oneIf(len(r.ready.faults()) == 0) })
	stop, err := serveAdmin(b.AdminAddr, adminServer(&r.ready, r.metrics.registry), r.log)
	if err != nil {
		return nil, err
	}
	r.cleanups = append(r.cleanups, stop)
	if r.nc, err = bus.Connect(b.NATS, name, r.log); err != nil {
		r.close()
		return nil, &Invalid{"NATS", err.Error()}
	}
	r.cleanups = append(r.cleanups, r.nc.Close)
	r.metrics.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "errand_nats_reconnects_total",
		Help: "Times that the connection to NATS was lost and came back."}, func() float64 { return float64(r.nc.Stats().Reconnects) }))
	r.rights.watch(r.nc)
	r.ready.checks.add(func() string { return bus.Fault(r.nc) })
	return r, nil
}

// logStart logs what a reader of the log should know first. upstream, without credentials, is "" where there is none.
func (r *runtime) logStart(nats []string, upstream string) {
	version, revision, goVersion := build()
	line := r.log.Info().Str("version", version).Str("revision", revision).Str("go", goVersion).Strs("nats", nats)
	if at, err := url.Parse(upstream); err == nil && at.Host != "" {
		line = line.Str("upstream", at.Host)
	}
	line.Msg("starting")
}

// background runs work from now until the program is closed, also after ctx.
func (r *runtime) background(ctx context.Context, work func(context.Context)) {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() { work(ctx) })
	r.cleanups = append(r.cleanups, func() { stop(); wg.Wait() })
}

var errGrace = errors.New("SHUTDOWN_GRACE ended before everything in flight had finished; requests that had not will be delivered again")

// work runs all runs until ctx ends and what is in flight is settled, or the grace period ends. If one fails, all stop. Shortly
// after the grace it closes the connection, which ends every wait for NATS.
func (r *runtime) work(ctx context.Context, grace time.Duration, runs ...func(ctx, hard context.Context) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	hard, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	ended, finish := context.WithCancel(context.WithoutCancel(ctx))
	defer finish()
	context.AfterFunc(hard, func() {
		if retry.Pause(ended, retry.LastNaks) {
			r.nc.Close()
		}
	})
	r.ready.starting.Store("")
	r.log.Info().Msg("started")
	errs := make(chan error, len(runs))
	for _, run := range runs {
		go func() { errs <- run(ctx, hard) }() // waited for below
	}
	patience := context.AfterFunc(ctx, func() {
		r.log.Info().Dur("grace_ms", grace).Msg("stopping: what is in flight finishes first")
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

// poll is the run of a poller. What it has under way is only cheaper to finish than to learn again: it does not wait for that
// without a connection, nor beyond the grace.
func (r *runtime) poll(run func(context.Context)) func(ctx, hard context.Context) error {
	return func(ctx, hard context.Context) error {
		defer context.AfterFunc(hard, r.nc.Close)()
		defer context.AfterFunc(ctx, func() {
			if !r.nc.IsConnected() {
				r.nc.Close()
			}
		})()
		run(ctx)
		return nil
	}
}

// close releases what the program holds, the last one first.
func (r *runtime) close() {
	for _, release := range slices.Backward(r.cleanups) {
		release()
	}
}
