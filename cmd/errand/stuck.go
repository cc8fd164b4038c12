package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"errand/internal/oncall/inspect"
	"errand/internal/style"
)

type stuck struct {
	output
	Older time.Duration `default:"1m" help:"Only requests that are older."`
	Limit uint          `default:"1000" help:"Read the oldest N of each queue."`
	All   bool          `help:"Show all requests; default: the oldest 20."`
}

func (*stuck) Help() string {
	return `Shows requests without an outcome, oldest first, and why they wait: no worker has taken them, the operation
is held or paused, they are deferred, or overdue.

Examples:

    errand stuck --older 1h --all
    errand stuck -o json | jq .causes`
}

func (s *stuck) Run(ctx context.Context, c console) error {
	if s.Limit == 0 {
		return invalid("--limit", "must be positive")
	}
	return s.read(ctx, "stuck", c, func(b broker, now time.Time) (listing, error) {
		found, err := b.Stuck(ctx, now.Add(-s.Older), int(s.Limit), now)
		return s.list(found, now), err
	})
}

// shownStuck is how many requests are shown without --all.
const shownStuck = 20

func (s *stuck) list(found inspect.Stuck, now time.Time) listing {
	l := listing{whole: found, text: func(c console) { s.write(c, found, now) }}
	for _, o := range found.Requests {
		l.add(o.RequestID, o)
	}
	return l
}

func (s *stuck) write(c console, found inspect.Stuck, now time.Time) {
	if len(found.Requests) == 0 {
		fmt.Fprintf(c.out, "No request has waited longer than %s.\n", style.Span(s.Older))
		return
	}
	shown := found.Requests
	if !s.All {
		shown = shown[:min(len(shown), shownStuck)]
	}
	var causes, rows [][]cell
	for i, cause := range found.Causes {
		causes = append(causes, []cell{numberCell(i + 1), numberCell(cause.Count), cellOf(inspect.Short(cause.Operation)),
			{since(&cause.Oldest, now), dim}, cellOf(until(cause.Next, now)), cellOf(cause.Why)})
	}
	for _, o := range shown {
		place := cellOf("")
		if o.Place > 0 {
			place = numberCell(o.Place)
		}
		same := func(c inspect.Cause) bool { return c.Why == o.Why && c.Operation == o.Operation }
		rows = append(rows, []cell{{since(&o.Published, now), dim}, cellOf(inspect.Short(o.Operation)), stateCell(o.State),
			place, cellOf(until(o.Next, now)), numberCell(slices.IndexFunc(found.Causes, same) + 1), cellOf(o.RequestID)})
	}
	c.table([]string{"#", "COUNT", "OPERATION", "OLDEST", "NEXT", "WHY"}, causes)
	fmt.Fprintln(c.out)
	c.table([]string{"AGE", "OPERATION", "STATE", "PLACE", "NEXT", "#", "REQUEST"}, rows)
	if left := len(found.Requests) - len(rows); left > 0 {
		fmt.Fprintf(c.out, "and %d more (--all)\n", left)
	}
	if uint64(found.Looked) < found.Total {
		fmt.Fprintf(c.out, "Only the oldest %d of %d in the queues were read (--limit).\n", found.Looked, found.Total)
	}
}
