package programs

import (
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"errand/internal/bus"
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
	holds        *prometheus.CounterVec
	transactions transactionMetrics
	readSince    atomic.Int64 // when the leader's last complete sweep began, nanoseconds since 1970; 0 before the first

	pending, ackPending, paused, stranded *prometheus.GaugeVec // of the program's queues
	bytes, maxBytes, replicas, current    *prometheus.GaugeVec // of the streams that it uses
}

// durations are the buckets of what takes between a millisecond and a minute.
var durations = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10, 20, 30, 60}

// newMetrics registers what several programs have. A metric with labels is shown once it has a value.
func newMetrics() *metrics {
	m := &metrics{registry: prometheus.NewRegistry()}
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	version, revision, goVersion := build()
	m.gauge("errand_build_info", "1; the labels say what the program was built from.",
		prometheus.Labels{"version": version, "revision": revision, "goversion": goVersion}, func() float64 { return 1 })
	m.calls = m.histograms("call fate", "errand_upstream_call_duration_seconds",
		"Upstream calls, by call and by what is known about their fate.", durations)
	m.requests = newRequestMetrics(m)
	m.holds = m.counters("operation cause", "errand_holds_total", "Times that an operation began to be held, by cause.")
	m.pending = m.gauges("operation lane", "errand_queue_pending",
		"Requests in the queue that were not delivered yet, by operation and lane; every replica reports the same.")
	m.ackPending = m.gauges("operation lane", "errand_queue_ack_pending",
		"Requests of the queue that are in flight or deferred, by operation and lane; every replica reports the same.")
	m.paused = m.gauges("operation lane", "errand_queue_paused",
		"1 while a queue is paused, by operation and lane; every replica reports the same.")
	m.stranded = m.gauges("operation lane", "errand_queue_stranded",
		"Requests in a queue that its consumer has forgotten for two minutes, by operation and lane; every replica reports the same.")
	m.bytes = m.gauges("stream", "errand_stream_bytes", "Bytes that a stream has; every program that uses it reports the same.")
	m.maxBytes = m.gauges("stream", "errand_stream_max_bytes", "Bytes beyond which a stream refuses what is published; 0 for no limit.")
	m.replicas = m.gauges("stream", "errand_stream_replicas", "Copies that a stream should have.")
	m.current = m.gauges("stream", "errand_stream_replicas_current",
		"Copies of a stream that are up to date; with half of them or fewer it stores nothing.")
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
	for _, op := range operations {
		m.requests.panics.WithLabelValues(string(op))
		for _, reason := range messages.Reasons {
			m.requests.ended.WithLabelValues(string(op), string(messages.Failed), string(reason))
			if messages.Uncertain.Final(op) { // a read never is, and stores no event when it is deferred
				m.requests.ended.WithLabelValues(string(op), string(messages.Uncertain), string(reason))
				m.requests.deferred.WithLabelValues(string(op), string(reason))
			}
			m.requests.dead.WithLabelValues(string(op), string(reason))
		}
	}
	m.gauge("errand_requests_in_flight", "Requests in flight.", nil, func() float64 { return float64(workers.inFlight()) })
	m.gauge("errand_busy_ratio", "Share of the workers, 0 to 1, that are in an upstream call; without those that wait for a retry and "+
		"those whose call has taken a third of UPSTREAM_TIMEOUT. Scale by this.", nil, workers.busyRatio)
}

// gauge registers a metric whose value is asked for.
func (m *metrics) gauge(name, help string, labels prometheus.Labels, value func() float64) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels}, value))
}

func (m *metrics) ofHold(op messages.Operation, h *hold.Hold) {
	begun := func(cause hold.Cause) prometheus.Counter { return m.holds.WithLabelValues(string(op), string(cause)) }
	for _, cause := range hold.Causes {
		begun(cause)
	}
	h.Began = func(cause hold.Cause) { begun(cause).Inc() }
	m.gauge("errand_held", "1 while no requests of an operation are processed because the upstream is down or refuses the account.",
		prometheus.Labels{"operation": string(op)}, func() float64 { return oneIf(h.Active()) })
}

func (m *metrics) ofDeliveries() {
	m.calls.WithLabelValues("logs", string(clients.Success))
	m.deliveries = m.counters("status", "errand_deliveries_total", "Delivery events published, by status.")
	m.matched = m.counters("confidence", "errand_matches_total",
		"States of log entries by the confidence of their match to a request.")
	m.lag("errand_poll_lag_seconds",
		"Time since the beginning of the leader's last complete sweep of the sending log, or since the start; it grows during a sweep.")
}

// ofRecipients registers how many recipients are kept, of how many; 0 means no limit.
func (m *metrics) ofRecipients(kept func() int, limit int) {
	m.gauge("errand_poller_recipients", "Recipients of recent mails that rows of the sending log are matched to.", nil,
		func() float64 { return float64(kept()) })
	m.gauge("errand_poller_recipients_limit", "Maximum of errand_poller_recipients, beyond which the oldest are forgotten; 0 for none.", nil,
		func() float64 { return float64(limit) })
}

// lag registers the time since what readThrough recorded, or since the start.
func (m *metrics) lag(name, help string) {
	began := time.Now()
	m.gauge(name, help, nil, func() float64 {
		if nanoseconds := m.readSince.Load(); nanoseconds != 0 {
			return time.Since(time.Unix(0, nanoseconds)).Seconds()
		}
		return time.Since(began).Seconds()
	})
}

// ofPoller registers whether a poller leads; until it does, it is a standby.
func (m *metrics) ofPoller(ready *readiness) {
	ready.leads(false)
	m.gauge("errand_poller_leads", "1 while this replica reads its list and publishes, 0 of a standby.", nil,
		func() float64 { return oneIf(!ready.standby.Load()) })
}

// readThrough records that a complete sweep began this long ago.
func (m *metrics) readThrough(ago time.Duration) { m.readSince.Store(time.Now().Add(-ago).UnixNano()) }

func (m *metrics) delivered(status messages.State, match messages.Confidence) {
	m.deliveries.WithLabelValues(string(status)).Inc()
	m.matched.WithLabelValues(string(match)).Inc()
}

func oneIf(condition bool) float64 {
	if condition {
		return 1
	}
	return 0
}

// gauges takes any number of labels, separated by spaces, as counters and histograms do.
func (m *metrics) gauges(labels, name, help string) *prometheus.GaugeVec {
	return promauto.With(m.registry).NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, strings.Fields(labels))
}

func (m *metrics) counters(labels, name, help string) *prometheus.CounterVec {
	return promauto.With(m.registry).NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, strings.Fields(labels))
}

func (m *metrics) histograms(labels, name, help string, buckets []float64) *prometheus.HistogramVec {
	opts := prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}
	return promauto.With(m.registry).NewHistogramVec(opts, strings.Fields(labels))
}

// ofStreams registers what is known of streams; faults returns why some do not store what the program writes.
func (m *metrics) ofStreams(names []string, faults func() map[string]string) {
	for _, name := range names {
		m.gauge("errand_stream_fault", "1 while a stream does not store what the program writes; /readyz says why.",
			prometheus.Labels{"stream": name}, func() float64 { return oneIf(faults()[name] != "") })
	}
}

// set stores what the servers just reported; found has no queues and no streams if they did not answer.
func (m *metrics) set(found bus.Found) {
	if found.Queues == nil {
		for _, g := range []*prometheus.GaugeVec{m.pending, m.ackPending, m.paused, m.stranded, m.bytes, m.maxBytes, m.replicas, m.current} {
			g.Reset()
		}
		return
	}
	for _, q := range found.All {
		op, lane, info := string(q.Operation()), q.LaneName(), found.Queues[q.Name].CachedInfo()
		m.pending.WithLabelValues(op, lane).Set(float64(info.NumPending))
		m.ackPending.WithLabelValues(op, lane).Set(float64(info.NumAckPending))
		m.paused.WithLabelValues(op, lane).Set(oneIf(info.Paused))
		m.stranded.WithLabelValues(op, lane) // 0 until heal finds some
	}
	for name, info := range found.Streams {
		if info.Config.Discard != jetstream.DiscardOld { // it drops, and is full as a rule
			m.bytes.WithLabelValues(name).Set(float64(info.State.Bytes))
			m.maxBytes.WithLabelValues(name).Set(float64(max(info.Config.MaxBytes, 0)))
		}
		m.replicas.WithLabelValues(name).Set(float64(info.Config.Replicas))
		m.current.WithLabelValues(name).Set(float64(bus.CurrentReplicas(info.Cluster)))
	}
}
