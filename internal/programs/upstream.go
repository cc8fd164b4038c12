package programs

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"errand/internal/bus"
	"errand/internal/requests/attempt"
	"errand/internal/requests/consumer"
	"errand/internal/requests/hold"
	"errand/internal/telemetry"
	"errand/internal/throttle"
	"errand/pkg/clients"
	"errand/pkg/messages"
)

// caller is what all calls of a program share.
func (q *Requests) caller(ctx context.Context, c *Common, limit *throttle.Limit) *attempt.Caller {
	caller := &attempt.Caller{Policy: c.policy(), Timeout: c.UpstreamTimeout, Slots: make(hold.Slots, q.Concurrency), Stop: ctx.Done()}
	if limit != nil {
		caller.Throttle, caller.Owe = limit.Wait, limit.Owe
	}
	return caller
}

// settings are what the consumers of a program share. In addition to the requests that may
// be calling, a quarter more may be reading or storing events, and one at least: an idle queue
// keeps a place.
func (q *Requests) settings(r *runtime, store bus.EventStore) consumer.Settings {
	return consumer.Settings{Conn: r.nc, Log: countingLog{r.tracer.Log(store), r.metrics.requests}, Dead: r.publisher, InFlight: make(hold.Slots, q.Concurrency+max(q.Concurrency/4, 1)),
		GiveUpAfter: q.GiveUpAfter, Kept: r.kept, Newer: r.newer.Load, Logger: r.log,
		Observer: consumer.Observer{Settled: r.metrics.requests.settled, Panicked: r.metrics.requests.panicked, Tracer: r.tracer}}
}

// hold makes the circuit breaker of one operation, and adds it to readiness and metrics.
func (r *runtime) hold(op messages.Operation, service string, interval time.Duration) *hold.Hold {
	h := &hold.Hold{Service: service, Interval: interval, Log: r.log}
	r.ready.addHold(op, h)
	r.metrics.ofHold(op, h)
	return h
}

// reading is the read of a probe, with a slot like every other call.
func reading(slots hold.Slots, read func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := slots.Take(ctx); err != nil {
			return err
		}
		defer slots.Free()
		return read(ctx)
	}
}

// options are what all clients of a program share.
func (c *Common) options(conns int, o *observer, limit *throttle.Limit) []clients.Option {
	opts := []clients.Option{clients.Timeout(c.UpstreamTimeout), clients.MaxConns(conns), clients.Observe(o.call), clients.UnderWay(&o.underWay)}
	if limit != nil {
		opts = append(opts, clients.WaitToRead(limit.Wait))
	}
	if c.Tracing.On() {
		opts = append(opts, clients.Wrap(func(next http.RoundTripper) http.RoundTripper { return traced{next, o} }))
	}
	opts = append(opts, c.insecure()...)
	if c.Transport != nil {
		opts = append(opts, clients.Transport(c.Transport))
	}
	return opts
}

// insecure is what is allowed of an upstream's address by ALLOW_PLAIN_HTTP.
func (c *Common) insecure() []clients.Option {
	if c.AllowPlainHTTP {
		return []clients.Option{clients.AllowPlainHTTP()}
	}
	return nil
}

// badAddress is the error for the address of a service, with the setting that allows it if
// there is one.
func badAddress(variable string, err error) error {
	problem := err.Error()
	if errors.Is(err, clients.ErrPlainHTTP) {
		problem += " (ALLOW_PLAIN_HTTP=true)"
	}
	return &Invalid{variable, problem}
}

// observer passes every upstream call on to the renewal of secrets and the metrics.
type observer struct {
	renewal  renewal
	metrics  *metrics
	tracer   *telemetry.Tracer
	underWay atomic.Int64 // calls
}

func newObserver(every time.Duration) *observer { return &observer{renewal: renewal{every: every}} }

// attach must be called before the first call.
func (o *observer) attach(r *runtime, again func() (bool, error)) {
	o.metrics, o.tracer, o.renewal.log, o.renewal.again = r.metrics, r.tracer, r.log, again
}

func (o *observer) call(c clients.Call) {
	o.renewal.observe(c) // first: the next probe has the new secrets
	o.metrics.call(c)
}

// traced makes the calls of a client in spans.
type traced struct {
	http.RoundTripper
	observer *observer
}

func (t traced) RoundTrip(r *http.Request) (*http.Response, error) {
	return t.observer.tracer.RoundTrip(t.RoundTripper, r)
}
