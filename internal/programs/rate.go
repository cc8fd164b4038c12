package programs

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"errand/internal/bus"
	"errand/internal/throttle"
)

const rateProblem = "must be 0.001 to 100000 calls per second (for example 20 or 0.5), or 0 for no limit"

func isRate(perSecond float64) bool {
	return perSecond == 0 || perSecond >= 0.001 && perSecond <= 100_000
} // NaN is not

// streams adds to the streams that a program needs the one that FLEET_RATE needs.
func (c *Common) streams(names ...string) []string {
	if c.FleetRate > 0 {
		names = append(names, bus.RateLeases)
	}
	return names
}

// limit returns what calls wait for, at most until ctx ends; nil means nothing. FLEET_RATE is shared with other replicas.
func (r *runtime) limit(ctx context.Context, c *Common) *throttle.Limit {
	if c.Rate == 0 && c.FleetRate == 0 {
		return nil
	}
	waits := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "errand_rate_wait_seconds",
		Help: "Time that upstream calls waited for RATE and FLEET_RATE before they began.", Buckets: durations})
	r.metrics.registry.MustRegister(waits)
	l := &throttle.Limit{Stop: ctx.Done(), Waited: func(d time.Duration) { waits.Observe(d.Seconds()) }}
	if c.Rate > 0 {
		l.Replica = throttle.NewReplica(c.Rate)
	}
	if c.FleetRate == 0 {
		return l
	}
	l.Fleet = throttle.NewFleet(c.FleetRate, bus.LeaseStore{Publisher: r.publisher, Program: r.name}, r.log)
	r.ready.add(l.Fleet.Fault)
	r.metrics.registry.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "errand_rate_share",
			Help: "Share of FLEET_RATE, 0 to 1, that this replica has leased lately; 0 without calls."}, l.Fleet.Share),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "errand_rate_leased_calls_total",
			Help: "Calls of FLEET_RATE that this replica has leased, made or not."}, l.Fleet.Leased))
	r.background(ctx, l.Fleet.Run)
	return l
}
