package app

import (
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"errand/internal/bus"
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
	known      atomic.Int64 // when a sweep began that read the log through; nanoseconds since 1970
	pending    *prometheus.GaugeVec
	ackPending *prometheus.GaugeVec
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
		pending: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "errand_queue_pending",
			Help: "Requests in the queue that nobody has taken yet, by operation; every replica tells the same."}, []string{"operation"}),
		ackPending: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "errand_queue_ack_pending",
			Help: "Requests of the queue that are in somebody's hand or put back until later, by operation; every replica tells the same."}, []string{"operation"}),
	}
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), m.calls)
	return m
}

// hands are those of a program, and what is in them.
type hands struct {
	all      int
	requests []func() int  // in hand, of each of its consumers
	calls    *atomic.Int64 // under way; a request may make several at once
}

func (h hands) taken() (n int) {
	for _, count := range h.requests {
		n += count()
	}
	return n
}

// busy is the share of the hands that wait for an upstream's answer.
func (h hands) busy() float64 { return float64(min(int(h.calls.Load()), h.taken())) / float64(h.all) }

// ofRequests adds what a consumer of requests tells. What went wrong is counted from
// nought, so that the first one is an increase too.
func (m *metrics) ofRequests(hold *consumer.Hold, hands hands, operations ...messages.Operation) {
	for _, op := range operations {
		for _, outcome := range []messages.State{messages.Failed, messages.Uncertain} {
			m.requests.WithLabelValues(string(op), string(outcome))
		}
	}
	m.registry.MustRegister(m.requests, m.settled, m.pending, m.ackPending,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "errand_in_hand",
			Help: "Requests in hand."}, func() float64 { return float64(hands.taken()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "errand_busy_ratio",
			Help: "Share of the hands, 0 to 1, that are in an upstream call; one that waits to repeat a call is not, nor one whose call has taken a third of UPSTREAM_TIMEOUT. What to scale by."}, hands.busy),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "errand_held",
			Help: "1 while no requests are taken because the upstream or the account is at fault."}, func() float64 {
			if hold.Active() {
				return 1
			}
			return 0
		}))
}

// queues tells what the servers just said of the queues; nothing while they say nothing.
func (m *metrics) queues(found map[string]jetstream.Consumer, of []bus.Queue) {
	if found == nil {
		m.pending.Reset()
		m.ackPending.Reset()
		return
	}
	for _, q := range of {
		op, info := strings.TrimSuffix(q.Filter, ".requested"), found[q.Name].CachedInfo()
		m.pending.WithLabelValues(op).Set(float64(info.NumPending))
		m.ackPending.WithLabelValues(op).Set(float64(info.NumAckPending))
	}
}

// ofDeliveries adds what the poller tells.
func (m *metrics) ofDeliveries() {
	m.deliveries.WithLabelValues(string(messages.Overdue)) // from nought: the first one is an increase too
	m.calls.WithLabelValues("logs", string(clients.Success))
	m.readThrough(0)
	m.registry.MustRegister(m.deliveries, m.matched, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "errand_poll_lag_seconds",
		Help: "Time since the sending log was last known to be read through, or since the start; it grows while a sweep takes its time."},
		func() float64 { return time.Since(time.Unix(0, m.known.Load())).Seconds() }))
}

// readThrough notes that the log is known up to so long ago.
func (m *metrics) readThrough(ago time.Duration) { m.known.Store(time.Now().Add(-ago).UnixNano()) }

// of adds what /readyz says, for those who do not ask it.
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
