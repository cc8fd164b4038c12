package console

import (
	"net/http"
	"slices"
	"time"

	"errand/internal/oncall/access"
	"errand/internal/oncall/index"
	"errand/internal/oncall/inspect"
	"errand/pkg/messages"
)

// today shows the current state of everything.
type today struct {
	known
	Chart      chart
	Since      time.Time // when counting starts
	Reasons    []index.Count
	Deliveries []share
	Dead       int
	Waiting    uint64
	Oldest     *messages.Time
	Held       []held
	Paused     []inspect.Queue
	Stale      bool // queues and programs do not answer
}

// share is one state's part of all deliveries.
type share struct {
	State messages.State
	Count int
	Width float64 // of 100
}

// held is an operation under a hold.
type held struct {
	Operation messages.Operation
	Why       string
	Since     messages.Time
}

const topReasons = 8

func (s *Server) today(r *http.Request, _ access.User) (page, error) {
	ctx := r.Context()
	begin := time.Now().UTC().Truncate(time.Hour).Add(-(hours - 1) * time.Hour)
	t := today{known: s.watch.get(), Since: begin}
	bars, err := s.index.Outcomes(ctx, begin, time.Hour)
	if err != nil {
		return page{}, err
	}
	t.Chart = chartOf(bars, begin)
	if t.Reasons, err = s.index.Reasons(ctx, begin); err != nil {
		return page{}, err
	}
	t.Reasons = t.Reasons[:min(topReasons, len(t.Reasons))]
	deliveries, err := s.index.Deliveries(ctx, begin)
	if err != nil {
		return page{}, err
	}
	t.Deliveries = sharesOf(deliveries)
	counts, err := s.index.Counts(ctx)
	if err != nil {
		return page{}, err
	}
	for _, c := range counts {
		if c.Dead {
			t.Dead += c.Count
		}
	}
	t.ofQueues()
	t.Stale = t.Err != nil || !s.watch.gone().IsZero()
	return page{Title: "Today", Nav: "/", Name: "today", Data: t}, nil
}

// ofQueues sums up the status of queues and programs.
func (t *today) ofQueues() {
	for _, q := range t.Status.Queues {
		t.Waiting += q.Untaken + uint64(max(0, q.Taken))
		if q.Oldest != nil && (t.Oldest == nil || q.Oldest.Before(t.Oldest.Time)) {
			t.Oldest = q.Oldest
		}
		if q.PausedUntil != nil {
			t.Paused = append(t.Paused, q)
		}
	}
	for _, p := range t.Status.Programs {
		for _, h := range p.Holds {
			known := func(have held) bool { return have.Operation == h.Operation } // from another replica
			if !slices.ContainsFunc(t.Held, known) {
				t.Held = append(t.Held, held{h.Operation, h.Why, h.Since})
			}
		}
	}
}

// sharesOf sums up counts by state.
func sharesOf(counts []index.Count) (all []share) {
	total := 0
	for _, c := range counts {
		i := slices.IndexFunc(all, func(s share) bool { return s.State == c.State })
		if i < 0 {
			i, all = len(all), append(all, share{State: c.State})
		}
		all[i].Count += c.Count
		total += c.Count
	}
	slices.SortFunc(all, func(a, b share) int { return b.Count - a.Count })
	for i := range all {
		all[i].Width = 100 * float64(all[i].Count) / float64(total)
	}
	return all
}
