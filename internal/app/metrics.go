package app

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"errand/internal/hold"
	"errand/pkg/clients"
	"errand/pkg/messages"
)

// metrics are a program's Prometheus metrics. Labels have closed sets of values: a
// request, address or order number is never one of them.
type metrics struct {
	registry   *prometheus.Registry
	requests   *prometheus.CounterVec
	settled    *prometheus.HistogramVec
	calls      *prometheus.HistogramVec
	deliveries *prometheus.CounterVec
	matched    *prometheus.CounterVec
	known      atomic.Int64 // when the last complete sweep began, nanoseconds since 1970
	panics     *prometheus.CounterVec
	queues     *queueMetrics
	streams    *streamMetrics
}

func newMetrics() *metrics {
	m := &metrics{
		queues:   newQueueMetrics(),
		streams:  newStreamMetrics(),
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "errand_requests_total",
			Help: "Requests settled, by operation and outcome; repeated: the outcome was already stored."}, []string{"operation", "outcome"}),
		settled: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "errand_request_duration_seconds",
			Help: "Time from receiving a request to acknowledging it.", Buckets: prometheus.ExponentialBuckets(0.001, 4, 9)}, []string{"operation"}),
		calls: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "errand_upstream_call_duration_seconds",
			Help: "Upstream calls, by call and by what is known about their fate.", Buckets: prometheus.ExponentialBuckets(0.001, 4, 9)}, []string{"call", "fate"}),
		deliveries: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "errand_deliveries_total",
			Help: "Delivery events published, by status."}, []string{"status"}),
		matched: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "errand_matches_total",
			Help: "States of log entries by the confidence of their match to a request; with two pollers a state may count twice."}, []string{"confidence"}),
	}
	m.panics = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "errand_panics_total",
		Help: "Panics that were caught while a request was handled, by operation; the request is dead-lettered at its third delivery."}, []string{"operation"})
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), m.calls)
	m.ofBuild()
	return m
}

// workers counts a program's workers and what they do.
type workers struct {
	total    int
	requests []func() int  // requests in flight, for each consumer
	calls    *atomic.Int64 // calls under way; a request may make several at once
}

func (h workers) inFlight() (n int) {
	for _, count := range h.requests {
		n += count()
	}
	return n
}

// busyRatio is the share of the workers that wait for an upstream's answer.
func (h workers) busyRatio() float64 {
	return float64(min(int(h.calls.Load()), h.inFlight())) / float64(h.total)
}

// ofRequests registers the metrics of a consumer of requests. Counters of failures begin
// at zero, so that the first failure is an increase.
func (m *metrics) ofRequests(workers workers, operations ...messages.Operation) {
	for _, op := range operations {
		for _, outcome := range []messages.State{messages.Failed, messages.Uncertain} {
			m.requests.WithLabelValues(string(op), string(outcome))
		}
	}
	for _, op := range operations {
		m.panics.WithLabelValues(string(op))
	}
	m.registry.MustRegister(m.requests, m.settled, m.queues.pending, m.queues.ackPending, m.queues.paused,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "errand_requests_in_flight",
			Help: "Requests in flight."}, func() float64 { return float64(workers.inFlight()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "errand_busy_ratio",
			Help: "Share of the workers, 0 to 1, that are in an upstream call; without those that wait for a retry and those whose call has taken a third of UPSTREAM_TIMEOUT. Scale by this."}, workers.busyRatio),
		m.panics)
}

// ofHold registers the metric of one operation's hold.
func (m *metrics) ofHold(op messages.Operation, h *hold.Hold) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "errand_held", ConstLabels: prometheus.Labels{"operation": string(op)},
		Help: "1 while no requests of an operation are processed because the upstream is down or refuses the account."}, func() float64 {
		if h.Active() {
			return 1
		}
		return 0
	}))
}

func (m *metrics) panicked(op messages.Operation) { m.panics.WithLabelValues(string(op)).Inc() }

// ofDeliveries registers the poller's metrics.
func (m *metrics) ofDeliveries() {
	m.deliveries.WithLabelValues(string(messages.Overdue)) // begins at zero, so that the first one is an increase
	m.calls.WithLabelValues("logs", string(clients.Success))
	m.readThrough(0)
	m.registry.MustRegister(m.deliveries, m.matched, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "errand_poll_lag_seconds",
		Help: "Time since the beginning of the last complete sweep of the sending log, or since the start; it grows during a sweep."},
		func() float64 { return time.Since(time.Unix(0, m.known.Load())).Seconds() }))
}

// readThrough records that the log is complete up to this long ago.
func (m *metrics) readThrough(ago time.Duration) { m.known.Store(time.Now().Add(-ago).UnixNano()) }

// of registers the readiness as a metric.
func (m *metrics) of(ready *readiness) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "errand_ready",
		Help: "1 while the program can work; /readyz says why it cannot."}, func() float64 {
		if len(ready.faults()) > 0 {
			return 0
		}
		return 1
	}))
}

func (m *metrics) call(c clients.Call) {
	m.calls.WithLabelValues(c.Operation, string(c.Fate)).Observe(c.Duration.Seconds())
}

func (m *metrics) request(op messages.Operation, outcome string, took time.Duration) {
	m.requests.WithLabelValues(string(op), outcome).Inc()
	m.settled.WithLabelValues(string(op)).Observe(took.Seconds())
}
