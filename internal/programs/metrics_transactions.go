package programs

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"errand/pkg/clients"
	"errand/pkg/messages"
)

// transactionMetrics count what the poller of the transaction list finds.
type transactionMetrics struct {
	events, lookUps *prometheus.CounterVec
	late            *prometheus.GaugeVec
}

func newTransactionMetrics() transactionMetrics {
	return transactionMetrics{
		lookUps: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "errand_lookups_total",
			Help: "Looks at single enrollments in the transaction list, by what caused them."}, []string{"by"}),
		late: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "errand_lookups_late_seconds",
			Help: "How late the last of those looks was; one that is later than the next is due is left out."}, []string{"by"}),
		events: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "errand_transactions_total",
			Help: "Transaction events published, by kind (application, deduction) and by the confidence of their match to a request."},
			[]string{"kind", "confidence"}),
	}
}

// ofTransactions registers the metrics of the poller of the transaction list.
func (m *metrics) ofTransactions() {
	m.calls.WithLabelValues("transactions", string(clients.Success))
	t := m.transactions
	for _, by := range []messages.TransactionBy{messages.ByLookUp, messages.ByCallback} {
		t.lookUps.WithLabelValues(string(by))
		t.late.WithLabelValues(string(by))
	}
	m.registry.MustRegister(t.lookUps, t.late, t.events, m.lag("errand_transactions_lag_seconds",
		"Time since the beginning of the last complete look at the transaction list, or since the start; it grows during a look."))
}

func (t transactionMetrics) published(kind messages.TransactionKind, c messages.Confidence) {
	t.events.WithLabelValues(string(kind), string(c)).Inc()
}

func (t transactionMetrics) lookedUp(by messages.TransactionBy, late time.Duration) {
	t.lookUps.WithLabelValues(string(by)).Inc()
	t.late.WithLabelValues(string(by)).Set(late.Seconds())
}
