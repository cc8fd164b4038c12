package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"errand/internal/oncall/inspect"
	"errand/internal/programs"
	"errand/pkg/messages"
)

type list struct {
	output
	selection
	Limit     uint     `default:"50" help:"At most the newest N; 0 for all."`
	State     []string `placeholder:"STATE" help:"In these states: queued, started, deferred, reopened, or a final one."`
	Scheduled bool     `help:"What waits for its not_before; the same as --state deferred --reason scheduled. With --by-reason: how many."`
	ByReason  bool     `help:"Count what failed, is uncertain, partial or deferred, or is in those states, by operation and reason."`
}

// selection chooses the requests that a command is about.
type selection struct {
	Operation []string      `name:"op" placeholder:"OPERATION" help:"Of these operations: enroll, transactions, send, account."`
	Reason    []string      `placeholder:"REASON" help:"With these reasons, such as refused,no_answer."`
	Since     programs.When `placeholder:"TIME" help:"Since then: 90m, 24h, 3d, or a date such as 2026-01-31 or 2026-01-31T08:00."`
}

func (*list) Help() string {
	return `Shows requests by their current state, newest first. --since is about the time of that state, and a request
that was reopened or resolved is not shown in its former state.

Examples:

    errand list --state failed,uncertain --since 24h
    errand list --state failed --since 1h --by-reason
    errand list --op send --reason refused --since 3d --limit 0 -o name
    errand list --scheduled -o jsonl | jq -r .request_id`
}

func (l *list) Run(ctx context.Context, c console) error {
	if l.Scheduled {
		l.State, l.Reason = append(l.State, string(messages.Deferred)), append(l.Reason, string(messages.ReasonScheduled))
	}
	q, err := l.query(time.Now(), l.Limit)
	if err != nil {
		return err
	}
	for _, name := range l.State {
		state := messages.State(name)
		if known := inspect.States(q.Operations); !slices.Contains(known, state) {
			return invalid("--state", "must be one of %s, got %q", joined(known), name)
		}
		q.States = append(q.States, state)
	}
	if l.ByReason {
		if q.Limit = 0; len(q.States) == 0 {
			q.States = inspect.Reasoned
		}
	}
	return l.read(ctx, "list", c, func(b broker, now time.Time) (listing, error) {
		q.Since = l.Since.From(now)
		rows, err := b.List(ctx, q, now)
		if l.ByReason {
			return listGroups(inspect.ByReason(rows), now), err
		}
		out := listRequests(rows, now)
		if q.Limit > 0 && len(rows) >= q.Limit {
			out.text = func(c console) { fmt.Fprintf(c.out, "\nThe newest %d; --limit 0 shows all.\n", q.Limit) }
		}
		return out, err
	})
}

func listRequests(rows []inspect.Row, now time.Time) listing {
	out := listing{head: []string{"TIME", "OPERATION", "STATE", "REQUEST", "REASON", "MESSAGE"}, none: "none"}
	for _, r := range rows {
		out.add(r.RequestID, r, cell{stamp(r.Time.Time, now), dim}, cellOf(inspect.Short(r.Operation)), stateCell(r.State),
			cellOf(r.RequestID), cellOf(reasonOf(r)), cellOf(r.Message))
	}
	return out
}

func listGroups(groups []inspect.Group, now time.Time) listing {
	out := listing{head: []string{"COUNT", "OPERATION", "STATE", "REASON", "LAST", "EXAMPLE", "MESSAGE"}, none: "none"}
	for _, g := range groups {
		out.add(g.Example, g, numberCell(g.Count), cellOf(inspect.Short(g.Operation)), stateCell(g.State), cellOf(g.Reason),
			cell{stamp(g.Last.Time, now), dim}, cellOf(g.Example), cellOf(g.Message))
	}
	return out
}

func reasonOf(r inspect.Row) string {
	if r.HTTPStatus == 0 {
		return string(r.Reason)
	}
	return strings.TrimSpace(fmt.Sprintf("%s %d", r.Reason, r.HTTPStatus))
}

func stateCell(state messages.State) cell { return cell{string(state), colourOf(state)} }

func (s selection) query(now time.Time, limit uint) (inspect.Query, error) {
	q := inspect.Query{Limit: int(limit), Since: s.Since.From(now)}
	var err error
	if q.Operations, err = operationsOf("--op", s.Operation); err != nil {
		return q, err
	}
	for _, name := range s.Reason {
		if !slices.Contains(messages.Reasons, messages.Reason(name)) {
			return q, invalid("--reason", "must be one of %s, got %q", joined(messages.Reasons), name)
		}
		q.Reasons = append(q.Reasons, messages.Reason(name))
	}
	return q, nil
}

func joined[T ~string](list []T) string {
	names := make([]string, len(list))
	for i, name := range list {
		names[i] = string(name)
	}
	return strings.Join(names, ", ")
}
