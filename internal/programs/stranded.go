package programs

import (
	"context"
	"time"

	"errand/internal/bus"
	"errand/internal/retry"
)

// stranding follows the readings of one queue; zero while they find nothing forgotten.
type stranding struct {
	since time.Time // of the first of the readings that found something
	least int       // of them
	next  time.Time // the queue is not started over before
}

// read adds a reading. It returns how many requests every reading found that was taken in retry.Stranded or longer.
func (s *stranding) read(n int, now time.Time) int {
	if n == 0 {
		*s = stranding{}
		return 0
	}
	if s.since.IsZero() {
		s.since, s.least = now, n
	}
	s.least = min(s.least, n)
	if now.Sub(s.since) < retry.Stranded {
		return 0
	}
	return s.least
}

// heal looks for requests that the program's queues have forgotten, and starts such a queue over. Every replica may: what is
// delivered twice is not run twice. Where the history may not know what was run, or a person paused the queue, a person decides.
func (r *runtime) heal(ctx context.Context, found bus.Found) {
	if r.strandings == nil {
		r.strandings = map[string]stranding{}
	}
	for _, q := range found.All {
		n, err := bus.Forgotten(ctx, r.js, q)
		if err != nil { // it shows as a fault
			delete(r.strandings, q.Name)
			continue
		}
		s, now := r.strandings[q.Name], time.Now()
		n = s.read(n, now)
		r.metrics.stranded.WithLabelValues(string(q.Operation()), q.LaneName()).Set(float64(n))
		requests := found.Streams[q.Stream]
		if n > 0 && requests != nil && !found.Queues[q.Name].CachedInfo().Paused && now.After(s.next) {
			s.next = now.Add(retry.StartOver)
			made, err := bus.Younger(ctx, r.js, q, requests.State.FirstTime)
			if err == nil && made.IsZero() {
				err = bus.StartOver(ctx, r.js, q)
			}
			if err != nil || made.IsZero() {
				r.log.Warn().Err(err).Str("op", q.String()).Int("requests", n).Msg("the queue had forgotten requests: it is started over")
			}
		}
		r.strandings[q.Name] = s
	}
}
