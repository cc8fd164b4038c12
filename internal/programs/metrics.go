package programs

import (
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"errand/internal/requests/hold"
	"errand/pkg/clients"
	"errand/pkg/messages"
)

// metrics are a program's Prometheus metrics. No label is ever a request, an address or an order number.
type metrics struct {
	registry     *prometheus.Registry
	requests     requestMetrics
	calls        *prometheus.HistogramVec
	deliveries   *prometheus.CounterVec
	matched      *prometheus.CounterVec
	transactions *transactionMetrics
	readSince    atomic.Int64 // when the last complete sweep began, nanoseconds since 1970; 0 before the first
	queues       *queueMetrics
	streams      *streamMetrics
}

// durations are the buckets of what takes between a millisecond and a minute.
var durations = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10, 20, 30, 60}

func newMetrics() *metrics {
	m := &metrics{
		queues:       newQueueMetrics(),
		streams:      newStreamMetrics(),
		registry:     prometheus.NewRegistry(),
		requests:     newRequestMetrics(),
		transactions: newTransactionMetrics(),
		calls: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "errand_upstream_call_duration_seconds",
			Help: "Upstream calls, by call and by what is known about their fate.", Buckets: durations}, []string{"call", "fate"}),
		deliveries: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "errand_deliveries_total",
			Help: "Delivery events published, by status."}, []string{"status"}),
		matched: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "errand_matches_total",
			Help: "States of log entries by the confidence of their match to a request; with two pollers a state may count twice."},
			[]string{"confidence"}),
	}
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

func (w workers) inFlight() (n int) {
	for _, count := range w.requests {
		n += count()
	}
	return n
}

// busyRatio is the share of workers that wait for an answer from the service.
func (w workers) busyRatio() float64 {
	return float64(min(int(w.calls.Load()), w.inFlight())) / float64(w.total)
}

// ofRequests registers the metrics of a consumer. Counters of failures begin at zero: the first failure is an increase.
func (m *metrics) ofRequests(workers workers, operations ...messages.Operation) {
	m.requests.begin(operations)
	m.registry.MustRegister(m.requests.all()...)
	m.registry.MustRegister(m.queues.pending, m.queues.ackPending, m.queues.paused,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "errand_requests_in_flight",
			Help: "Requests in flight."}, func() float64 { return float64(workers.inFlight()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "errand_busy_ratio",
			Help: "Share of the workers, 0 to 1, that are in an upstream call; without those that wait for a retry and those whose call " +
				"has taken a third of UPSTREAM_TIMEOUT. Scale by this."}, workers.busyRatio))
}

func (m *metrics) ofHold(op messages.Operation, h *hold.Hold) {
	operation := prometheus.Labels{"operation": string(op)}
	begun := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "errand_holds_total", ConstLabels: operation,
		Help: "Times that an operation began to be held, by cause."}, []string{"cause"})
	for _, cause := range hold.Causes {
		begun.WithLabelValues(string(cause))
	}
	h.Began = func(cause hold.Cause) { begun.WithLabelValues(string(cause)).Inc() }
	m.registry.MustRegister(begun, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "errand_held", ConstLabels: operation,
		Help: "1 while no requests of an operation are processed because the upstream is down or refuses the account."},
		func() float64 { return oneIf(h.Active()) }))
}

func (m *metrics) ofDeliveries() {
	m.deliveries.WithLabelValues(string(messages.Overdue)) // begins at zero, so that the first one is an increase
	m.calls.WithLabelValues("logs", string(clients.Success))
	m.registry.MustRegister(m.deliveries, m.matched, m.lag("errand_poll_lag_seconds",
		"Time since the beginning of the last complete sweep of the sending log, or since the start; it grows during a sweep."))
}

// lag is the time since what readThrough recorded, or since the start.
func (m *metrics) lag(name, help string) prometheus.Collector {
	began := time.Now()
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
		if nanoseconds := m.readSince.Load(); nanoseconds != 0 {
			return time.Since(time.Unix(0, nanoseconds)).Seconds()
		}
		return time.Since(began).Seconds()
	})
}

// readThrough records that a complete sweep began this long ago.
func (m *metrics) readThrough(ago time.Duration) { m.readSince.Store(time.Now().Add(-ago).UnixNano()) }

func (m *metrics) delivered(status string, n int) {
	m.deliveries.WithLabelValues(status).Add(float64(n))
}
func (m *metrics) match(c messages.Confidence) { m.matched.WithLabelValues(string(c)).Inc() }

func (m *metrics) ofReadiness(ready *readiness) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "errand_ready",
		Help: "1 while the program can work; /readyz says why it cannot."}, func() float64 { return oneIf(len(ready.faults()) == 0) }))
}

func (m *metrics) call(c clients.Call) {
	m.calls.WithLabelValues(c.Operation, string(c.Fate)).Observe(c.Duration.Seconds())
}

func (m *metrics) ofNATS(nc *nats.Conn) {
	m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "errand_nats_reconnects_total",
		Help: "Times that the connection to NATS was lost and came back."}, func() float64 { return float64(nc.Stats().Reconnects) }))
}

func oneIf(condition bool) float64 {
	if condition {
		return 1
	}
	return 0
}
