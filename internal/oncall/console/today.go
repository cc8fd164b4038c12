package console

import (
	"context"
	"net/http"

	"errand/internal/oncall/access"
	"errand/internal/oncall/index"
	"errand/internal/oncall/inspect"
	"errand/pkg/messages"
)

type today struct {
	known
	Chart      chart
	Reasons    []index.Count
	Deliveries []index.Count
	Rows       int // of Deliveries
	Dead       int
	Waiting    uint64
	Scheduled  uint64
	Oldest     *messages.Time
	Stale      bool // queues and programs do not answer
}

const topReasons = 8

func (s *Server) today(r *http.Request, _ access.User) (page, error) {
	ctx := r.Context()
	begin := chartBegin()
	t := today{known: s.watch.get()}
	events, err := s.index.Events(ctx, begin)
	if err != nil {
		return page{}, err
	}
	t.Chart = chartOf(events, begin)
	t.Reasons = reasonsOf(events)
	t.Deliveries = index.Sum(events, func(k index.Kind) index.Kind {
		if k.Operation != messages.Delivery {
			return index.Kind{}
		}
		return index.Kind{State: k.State}
	})
	for _, c := range t.Deliveries {
		t.Rows += c.Count
	}
	counts, err := s.index.Counts(ctx)
	if err != nil {
		return page{}, err
	}
	t.Dead, _ = needed(counts)
	for _, q := range t.Status.Queues {
		t.Waiting += q.Untaken + uint64(max(0, q.Taken))
		t.Scheduled += q.Scheduled
		if q.Oldest != nil && (t.Oldest == nil || q.Oldest.Before(t.Oldest.Time)) {
			t.Oldest = q.Oldest
		}
	}
	t.Stale = t.Err != nil || !s.watch.gone().IsZero()
	return page{Title: "Today", Nav: "/", Name: "today", Data: t}, nil
}

func reasonsOf(events []index.Count) []index.Count {
	all := index.Sum(events, func(k index.Kind) index.Kind {
		if k.Reason == "" || k.Reason == messages.ReasonScheduled { // as its publisher wants it
			return index.Kind{}
		}
		return index.Kind{Operation: k.Operation, State: k.State, Reason: k.Reason}
	})
	return all[:min(topReasons, len(all))]
}

// example is a request that ended for a reason, and what the upstream said to it.
type example struct{ ID, Said string }

// examples returns the newest example of each top reason that has one with a dead letter.
func (w *watch) examples(ctx context.Context) map[index.Kind]example {
	events, _ := w.index.Events(ctx, chartBegin()) // what cannot be read now is read in a moment
	all := map[index.Kind]example{}
	for _, c := range reasonsOf(events) {
		found, err := w.index.Requests(ctx, index.Filter{Operations: []messages.Operation{c.Operation}, States: []messages.State{c.State},
			Reasons: []messages.Reason{c.Reason}, Dead: true, Limit: 1})
		if err != nil || len(found.Rows) == 0 {
			continue
		}
		letters, err := w.reader.DeadLettersOf(ctx, inspect.Name(found.Rows[0].DeadLetter))
		if err == nil && letters[0].Message != "" {
			all[c.Kind] = example{letters[0].RequestID, hideNamed(c.Operation, letters[0].Message, letters[0].Event.Message.Data)}
		}
	}
	return all
}
