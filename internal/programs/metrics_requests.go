package programs

import (
	"context"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"errand/internal/history"
	"errand/internal/requests/consumer"
	"errand/pkg/messages"
)

// requestMetrics count what becomes of requests.
type requestMetrics struct {
	ended, deferred, dead, panics *prometheus.CounterVec
	took, age                     *prometheus.HistogramVec
}

func newRequestMetrics(m *metrics) requestMetrics {
	return requestMetrics{
		ended: m.counters("operation outcome reason", "errand_requests_total",
			"Requests settled, by operation, outcome and, where it went wrong, reason; repeated: the outcome was already stored."),
		deferred: m.counters("operation reason", "errand_deferred_total",
			"Times that a request was deferred, by operation and reason: nothing happened upstream, and it is tried again later."),
		dead: m.counters("operation reason", "errand_dead_letters_total",
			"Dead letters stored, by operation and reason; a repeat of a request may store its dead letter again."),
		panics: m.counters("operation", "errand_panics_total",
			"Panics that were caught while a request was handled, by operation; the request is dead-lettered at its third delivery."),
		took: m.histograms("operation", "errand_request_duration_seconds", "Time from receiving a request to acknowledging it.", durations),
		age: m.histograms("operation outcome", "errand_request_age_seconds",
			"Time from publishing a request to its outcome, waits and retries included.", ages),
	}
}

// ages are the buckets of requests that may wait for a week.
var ages = []float64{0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 60, 300, 900, 3600, 4 * 3600, 24 * 3600, 7 * 24 * 3600}

func (m requestMetrics) settled(o consumer.Outcome) {
	op, outcome, reason := string(o.Operation), string(o.State), label(o.Reason)
	if o.DeadLetter {
		m.dead.WithLabelValues(op, reason).Inc()
	}
	m.took.WithLabelValues(op).Observe(o.Took.Seconds())
	if o.Repeated { // also one that a person cancelled: errand status counts the same as failed
		m.ended.WithLabelValues(op, "repeated", "").Inc()
		return
	}
	m.ended.WithLabelValues(op, outcome, reason).Inc()
	m.age.WithLabelValues(op, outcome).Observe(o.Age.Seconds())
}

func (m requestMetrics) panicked(op messages.Operation) { m.panics.WithLabelValues(string(op)).Inc() }

// label is a reason as a label; one that this program does not know is "other".
func label(reason messages.Reason) string {
	if reason == "" || slices.Contains(messages.Reasons, reason) {
		return string(reason)
	}
	return "other"
}

// countingLog counts what is deferred as it is stored.
type countingLog struct {
	history.Log
	metrics requestMetrics
}

// Append stores an event. Errors are the log's.
func (l countingLog) Append(ctx context.Context, r history.Record) (uint64, error) {
	sequence, err := l.Log.Append(ctx, r)
	if body, ok := r.Event.Body.(*messages.DeferredBody); ok && err == nil {
		l.metrics.deferred.WithLabelValues(string(r.Event.Operation), label(body.Reason)).Inc()
	}
	return sequence, err
}
