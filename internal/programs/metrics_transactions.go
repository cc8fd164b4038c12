package programs

import (
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"errand/pkg/clients"
	"errand/pkg/messages"
)

// transactionMetrics count what the poller of the transaction list finds.
type transactionMetrics struct {
	events, lookUps *prometheus.CounterVec
	late            *prometheus.GaugeVec
	duplicates      prometheus.Counter

	mu   sync.Mutex
	last []string // requests with duplicates
}

// ofTransactions registers the metrics of the poller of the transaction list.
func (m *metrics) ofTransactions() {
	m.calls.WithLabelValues("transactions", string(clients.Success))
	t := &m.transactions
	t.lookUps = m.counters("by", "errand_lookups_total", "Looks at single enrollments in the transaction list, by what caused them.")
	t.late = m.gauges("by", "errand_lookups_late_seconds",
		"How late the last of those looks was; one that is later than the next is due is left out.")
	for _, by := range []messages.TransactionBy{messages.ByLookUp, messages.ByCallback} {
		t.lookUps.WithLabelValues(string(by))
		t.late.WithLabelValues(string(by))
	}
	t.events = m.counters("kind confidence", "errand_transactions_total",
		"Transaction events published, by kind (application, deduction) and by the confidence of their match to a request.")
	t.duplicates = promauto.With(m.registry).NewCounter(prometheus.CounterOpts{Name: "errand_mandate_duplicates_total",
		Help: "Requests that have two applications in the transaction list: their payers may be enrolled twice."})
	m.lag("errand_transactions_lag_seconds",
		"Time since the beginning of the leader's last complete look at the transaction list, or since the start; it grows during a look.")
}

func (t *transactionMetrics) published(kind messages.TransactionKind, c messages.Confidence) {
	t.events.WithLabelValues(string(kind), string(c)).Inc()
}

func (t *transactionMetrics) lookedUp(by messages.TransactionBy, late time.Duration) {
	t.lookUps.WithLabelValues(string(by)).Inc()
	t.late.WithLabelValues(string(by)).Set(late.Seconds())
}

// maxDuplicates is how many of them status names.
const maxDuplicates = 10

// duplicate counts and logs a request that has two applications.
func (r *runtime) duplicate(request string) {
	t := &r.metrics.transactions
	t.duplicates.Inc()
	r.log.Warn().Str("request_id", request).Msg("the transaction list has two applications for one request: its payer may be enrolled twice")
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = append(t.last, request)
	t.last = t.last[max(0, len(t.last)-maxDuplicates):]
}

// twice are the last requests that have two applications.
func (t *transactionMetrics) twice() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.last)
}
