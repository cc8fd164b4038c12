package app

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"errand/internal/consumer"
	"errand/pkg/clients"
	"errand/pkg/messages"
)

// metrics are what a program tells Prometheus. Labels are of closed sets: no
// request, address or order number ever becomes one.
type metrics struct {
	registry   *prometheus.Registry
	requests   *prometheus.CounterVec
	settled    *prometheus.HistogramVec
	calls      *prometheus.HistogramVec
	deliveries *prometheus.CounterVec
	matched    *prometheus.CounterVec
	lag        prometheus.Gauge
}

func newMetrics() *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "errand_requests_total",
			Help: "Requests settled, by operation and outcome; repeated: the outcome was there already."}, []string{"operation", "outcome"}),
		settled: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "errand_request_duration_seconds",
			Help: "Time from taking a request to acknowledging it.", Buckets: prometheus.ExponentialBuckets(0.001, 4, 9)}, []string{"operation"}),
		calls: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "errand_upstream_call_duration_seconds",
			Help: "Upstream calls, by call and by what is known of their fate.", Buckets: prometheus.ExponentialBuckets(0.001, 4, 9)}, []string{"call", "fate"}),
		deliveries: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "errand_deliveries_total",
			Help: "Delivery events told, by status."}, []string{"status"}),
		matched: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "errand_matches_total",
			Help: "States of log entries that were tied to a request, by confidence; those of two pollers may count twice."}, []string{"confidence"}),
		lag: prometheus.NewGauge(prometheus.GaugeOpts{Name: "errand_poll_lag_seconds",
			Help: "Time since the sending log was last known to be read through."}),
	}
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), m.calls)
	return m
}

// ofRequests adds what a consumer of requests tells.
func (m *metrics) ofRequests(hold *consumer.Hold, inHand ...func() int) {
	m.registry.MustRegister(m.requests, m.settled,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "errand_in_hand",
			Help: "Requests in hand."}, func() (n float64) {
			for _, count := range inHand {
				n += float64(count())
			}
			return n
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "errand_held",
			Help: "1 while no requests are taken because the upstream or the account is at fault."}, func() float64 {
			if hold.Active() {
				return 1
			}
			return 0
		}))
}

// ofDeliveries adds what the poller tells.
func (m *metrics) ofDeliveries() { m.registry.MustRegister(m.deliveries, m.matched, m.lag) }

func (m *metrics) call(c clients.Call) {
	m.calls.WithLabelValues(c.Operation, string(c.Fate)).Observe(c.Duration.Seconds())
}

func (m *metrics) request(op messages.Operation, outcome string, took time.Duration) {
	m.requests.WithLabelValues(string(op), outcome).Inc()
	m.settled.WithLabelValues(string(op)).Observe(took.Seconds())
}
