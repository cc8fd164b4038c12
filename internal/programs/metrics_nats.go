package programs

import (
	"strings"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"errand/internal/bus"
)

// queueMetrics are what the servers report about a program's queues.
type queueMetrics struct{ pending, ackPending, paused *prometheus.GaugeVec }

func newQueueMetrics() *queueMetrics {
	return &queueMetrics{
		pending: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "errand_queue_pending",
			Help: "Requests in the queue that were not delivered yet, by operation; every replica reports the same."}, []string{"operation"}),
		ackPending: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "errand_queue_ack_pending",
			Help: "Requests of the queue that are in flight or deferred, by operation; every replica reports the same."}, []string{"operation"}),
		paused: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "errand_queue_paused",
			Help: "1 while a queue is paused, by operation; every replica reports the same."}, []string{"operation"}),
	}
}

// set stores what the servers just reported; found is nil if they did not answer.
func (m *queueMetrics) set(found map[string]jetstream.Consumer, of []bus.Queue) {
	if found == nil {
		reset(m.pending, m.ackPending, m.paused)
		return
	}
	for _, q := range of {
		op, info := strings.TrimSuffix(q.Filter, ".requested"), found[q.Name].CachedInfo()
		m.pending.WithLabelValues(op).Set(float64(info.NumPending))
		m.ackPending.WithLabelValues(op).Set(float64(info.NumAckPending))
		m.paused.WithLabelValues(op).Set(oneIf(info.Paused))
	}
}

// streamMetrics are what the servers report about the streams that a program uses.
type streamMetrics struct{ bytes, maxBytes, replicas, current *prometheus.GaugeVec }

func newStreamMetrics() *streamMetrics {
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{"stream"})
	}
	return &streamMetrics{
		bytes:    gauge("errand_stream_bytes", "Bytes that a stream has; every program that uses it reports the same."),
		maxBytes: gauge("errand_stream_max_bytes", "Bytes beyond which a stream refuses what is published; 0: the stream has no limit."),
		replicas: gauge("errand_stream_replicas", "Copies that a stream should have."),
		current: gauge("errand_stream_replicas_current",
			"Copies of a stream that are up to date; with half of them or fewer it stores nothing."),
	}
}

// ofStreams registers what is known of streams; faults returns why some do not store what the program writes.
func (m *metrics) ofStreams(names []string, faults func() map[string]error) {
	m.registry.MustRegister(m.streams.bytes, m.streams.maxBytes, m.streams.replicas, m.streams.current)
	for _, name := range names {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "errand_stream_fault",
			ConstLabels: prometheus.Labels{"stream": name},
			Help:        "1 while a stream does not store what the program writes; /readyz says why."},
			func() float64 { return oneIf(faults()[name] != nil) }))
	}
}

// set stores what the servers just reported; found is nil if they did not answer.
func (m *streamMetrics) set(found map[string]*jetstream.StreamInfo) {
	if found == nil {
		reset(m.bytes, m.maxBytes, m.replicas, m.current)
	}
	for name, info := range found {
		m.bytes.WithLabelValues(name).Set(float64(info.State.Bytes))
		m.maxBytes.WithLabelValues(name).Set(float64(max(info.Config.MaxBytes, 0)))
		m.replicas.WithLabelValues(name).Set(float64(info.Config.Replicas))
		m.current.WithLabelValues(name).Set(float64(bus.CurrentReplicas(info)))
	}
}

func reset(gauges ...*prometheus.GaugeVec) {
	for _, gauge := range gauges {
		gauge.Reset()
	}
}
