package console

import (
	"net/http"
	"time"

	"errand/internal/oncall/access"
	"errand/internal/oncall/index"
	"errand/pkg/messages"
)

type today struct {
	known
	Chart      chart
	Since      time.Time // when counting starts
	Reasons    []index.Count
	Deliveries []share
	Dead       int
	Waiting    uint64
	Oldest     *messages.Time
	Stale      bool // queues and programs do not answer
}

type share struct {
	State messages.State
	Count int
	Width float64 // of 100
}

const topReasons = 8

func (s *Server) today(r *http.Request, _ access.User) (page, error) {
	ctx := r.Context()
	begin := time.Now().UTC().Truncate(time.Hour).Add(-(hours - 1) * time.Hour)
	t := today{known: s.watch.get(), Since: begin}
	events, err := s.index.Events(ctx, begin)
	if err != nil {
		return page{}, err
	}
	t.Chart = chartOf(events, begin)
	t.Reasons = index.Sum(events, func(k index.Kind) index.Kind {
		if k.Reason == "" {
			return index.Kind{}
		}
		return index.Kind{Operation: k.Operation, State: k.State, Reason: k.Reason}
	})
	t.Reasons = t.Reasons[:min(topReasons, len(t.Reasons))]
	t.Deliveries = sharesOf(events)
	counts, err := s.index.Counts(ctx)
	if err != nil {
		return page{}, err
	}
	for _, c := range counts {
		if c.Needed() {
			t.Dead += c.Count
		}
	}
	for _, q := range t.Status.Queues {
		t.Waiting += q.Untaken + uint64(max(0, q.Taken))
		if q.Oldest != nil && (t.Oldest == nil || q.Oldest.Before(t.Oldest.Time)) {
			t.Oldest = q.Oldest
		}
	}
	t.Stale = t.Err != nil || !s.watch.gone().IsZero()
	return page{Title: "Today", Nav: "/", Name: "today", Data: t}, nil
}

func sharesOf(events []index.Count) (all []share) {
	total := 0
	for _, c := range index.Sum(events, func(k index.Kind) index.Kind {
		if k.Operation != messages.Delivery {
			return index.Kind{}
		}
		return index.Kind{State: k.State}
	}) {
		all = append(all, share{State: c.State, Count: c.Count})
		total += c.Count
	}
	for i := range all {
		all[i].Width = 100 * float64(all[i].Count) / float64(total)
	}
	return all
}
