package programs

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"errand/internal/bus"
	"errand/internal/throttle"
)

// What RATE and FLEET_RATE may be, in calls per second.
const (
	minRate = 0.001
	maxRate = 100_000
)

// limit is what calls wait for; nil: for nothing. The fleet's part follows when there is
// a connection to NATS, see runtime.throttle. Nobody waits any more when ctx ends.
func (c *Common) limit(ctx context.Context) *throttle.Limit {
	if c.Rate == 0 && c.FleetRate == 0 {
		return nil
	}
	l := &throttle.Limit{Stop: ctx.Done()}
	if c.Rate > 0 {
		l.Replica = throttle.NewReplica(c.Rate)
	}
	return l
}

// streams are those that a program needs, with that of its rate if it has one to share.
func (c *Common) streams(names ...string) []string {
	if c.FleetRate > 0 {
		names = append(names, bus.RateLeases)
	}
	return names
}

// throttle completes a limit, before the first call, and keeps it going.
func (r *runtime) throttle(ctx context.Context, c *Common, l *throttle.Limit) {
	if l == nil {
		return
	}
	waits := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "errand_rate_wait_seconds",
		Help: "Time that upstream calls waited for RATE and FLEET_RATE before they began.", Buckets: durations})
	r.metrics.registry.MustRegister(waits)
	l.Waited = func(d time.Duration) { waits.Observe(d.Seconds()) }
	if c.FleetRate == 0 {
		return
	}
	l.Fleet = throttle.NewFleet(c.FleetRate, bus.LeaseStore{Conn: r.nc, Program: r.name}, r.log)
	r.ready.add(l.Fleet.Fault)
	r.metrics.registry.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "errand_rate_share",
			Help: "Share of FLEET_RATE, 0 to 1, that this replica has leased lately; 0 without calls."}, l.Fleet.Share),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "errand_rate_leased_calls_total",
			Help: "Calls of FLEET_RATE that this replica has leased, made or not."}, l.Fleet.Leased))
	leasing, stop := context.WithCancel(context.WithoutCancel(ctx))
	var leaser sync.WaitGroup
	leaser.Go(func() { l.Fleet.Run(leasing) })
	r.cleanups = append(r.cleanups, func() { stop(); leaser.Wait() })
}
