package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"errand/internal/bus"
	"errand/internal/oncall/inspect"
	"errand/internal/style"
	"errand/pkg/messages"
)

type status struct {
	output
}

func (*status) Help() string {
	return `Shows on one screen what is wrong, which programs answer and what they hold, what waits in the queues, the
outcomes of the last hour, how far the sending log and the transaction list are read, and how full NATS is. The exit
status is 1 if something is wrong.

Examples:

    errand status
    errand status --watch
    errand status -o json | jq .problems`
}

func (s *status) Run(ctx context.Context, c console) error {
	return s.read(ctx, "status", c, func(b broker, now time.Time) (listing, error) {
		found, err := b.Status(ctx, now)
		return listProblems(found), err
	})
}

func listProblems(s inspect.Status) listing {
	l := listing{whole: s, text: func(c console) { screen(c, s) }}
	for _, p := range s.Problems {
		l.add(p.Where+": "+p.What, p)
	}
	if len(s.Problems) > 0 {
		l.failed = errors.New(style.Plural(len(s.Problems), "problem", "problems"))
	}
	return l
}

func screen(c console, s inspect.Status) {
	now := s.At.Time
	if len(s.Problems) == 0 {
		fmt.Fprintln(c.out, c.paint(green, "Nothing is wrong."))
	}
	for _, p := range s.Problems {
		fmt.Fprintln(c.out, c.paint(red, "! "+p.Where+": "+printable(p.What)))
	}
	section := func(head []string, rows [][]cell) {
		if len(rows) > 0 {
			fmt.Fprintln(c.out)
			c.table(head, rows)
		}
	}
	section([]string{"PROGRAM", "HOST", "VERSION", "UP", "STATE"}, programRows(s.Programs, now))
	section([]string{"QUEUE", "UNTAKEN", "OLDEST", "TAKEN", "OLDEST", "SCHEDULED", "PULLS", "STATE"}, queueRows(s.Queues, now))
	section([]string{"LAST HOUR", "GOOD", "FAILED", "UNCERTAIN", "PARTIAL", "DEFERRED", "RESOLVED"}, outcomeRows(s.Outcomes))
	section([]string{"STREAM", "MESSAGES", "SIZE", "LIMIT", "REPLICAS", "MADE"}, streamRows(s))
	fmt.Fprintln(c.out, "\nSending log: "+readUpTo(s, s.Poller, bus.LogPoller, "published"))
	if s.Transactions != nil {
		fmt.Fprintln(c.out, "Transaction list: "+readUpTo(s, *s.Transactions, bus.TransactionPoller, "all of it"))
	}
}

// readUpTo says how far a list is read, and up to when its watermark says that it was published, or read as a whole.
func readUpTo(s inspect.Status, p inspect.Poller, program, marked string) string {
	now, text := s.At.Time, "no "+program+" answers"
	switch {
	case p.Read() != nil && s.Answers(program) && !s.Leads(program):
		text = "read up to " + since(p.Read(), now) + " ago by the last leader; none leads now"
	case p.ReadThrough != nil:
		text = "read up to " + since(p.ReadThrough, now) + " ago"
	case s.Answers(program):
		text = program + " has started and read nothing yet"
	}
	if p.Watermark == nil {
		return text + "; " + marked + ": not yet"
	}
	return text + "; " + marked + ": up to " + stamp(p.Watermark.Time, now)
}

func programRows(programs []bus.ProgramStatus, now time.Time) (rows [][]cell) {
	for _, p := range programs {
		state := cell{"ready", green}
		switch {
		case p.Standby && len(p.Faults) == 0:
			state = cell{"standby", green}
		case len(p.Faults) > 0:
			state = cell{"not ready: " + strings.Join(p.Faults, "; "), red}
		case len(p.Holds) > 0:
			var held []string
			for _, h := range p.Holds {
				held = append(held, inspect.Short(h.Operation)+" since "+stamp(h.Since.Time, now))
			}
			state = cell{"holds " + strings.Join(held, ", "), red}
		}
		rows = append(rows, []cell{cellOf(p.Program), cellOf(p.Host), cellOf(p.Version), cellOf(since(&p.Started, now)), state})
	}
	return rows
}

func queueRows(queues []inspect.Queue, now time.Time) (rows [][]cell) {
	for _, q := range queues {
		state := cellOf("")
		if q.PausedUntil != nil {
			state = cell{"paused until " + stamp(q.PausedUntil.Time, now), yellow}
		}
		oldest, later := q.Oldest, cellOf("")
		if q.Lane == "" && q.Operation.HasLanes() {
			later = numberCell(q.Scheduled)
		}
		if q.Taken == 0 {
			oldest = nil
		}
		rows = append(rows, []cell{cellOf(q.String()), numberCell(q.Untaken), cellOf(since(q.FirstFree, now)),
			numberCell(q.Taken), cellOf(since(oldest, now)), later, numberCell(q.Pulls), state})
	}
	return rows
}

// goodStates are the final states of successful requests.
var goodStates = []messages.State{messages.Succeeded, messages.Listed, messages.Accepted, messages.Reported}

func outcomeRows(outcomes []inspect.Outcome) (rows [][]cell) {
	columns := [][]messages.State{goodStates, {messages.Failed}, {messages.Uncertain}, {messages.Partial}, {messages.Deferred},
		{messages.Resolved}}
	for _, op := range inspect.Operations {
		row := []cell{cellOf(op)}
		for _, states := range columns {
			row = append(row, count(outcomes, op, states))
		}
		rows = append(rows, row)
	}
	return rows
}

// count returns how often requests of an operation reached some states, "" if they cannot.
func count(outcomes []inspect.Outcome, op messages.Operation, states []messages.State) cell {
	sum, shown := uint64(0), cell{}
	for _, o := range outcomes {
		if o.Operation == op && slices.Contains(states, o.State) {
			sum += o.Count
			if shown = numberCell(sum); sum > 0 {
				shown.as = colourOf(o.State)
			}
		}
	}
	return shown
}

func streamRows(s inspect.Status) (rows [][]cell) {
	for _, st := range s.Streams {
		rows = append(rows, []cell{cellOf(st.Name), numberCell(st.Messages), cellOf(style.Bytes(st.Bytes)), cellOf(limitOf(st.MaxBytes)),
			cellOf(fmt.Sprintf("%d/%d", st.Current, st.Replicas)), cellOf(stamp(st.Created.Time, s.At.Time))})
	}
	return append(rows, []cell{cellOf("all of the account"), {}, cellOf(style.Bytes(s.Storage.Bytes)), cellOf(limitOf(s.Storage.Limit)), {},
		{}})
}

func limitOf(n int64) string {
	if n <= 0 {
		return "none"
	}
	return style.Bytes(n)
}
