package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"errand/internal/oncall/act"
	"errand/internal/oncall/inspect"
	"errand/pkg/messages"
)

type pause struct {
	acting
	For        period   `required:"" placeholder:"TIME" help:"How long: 30m, 12h, 2d; at most a week."`
	Operations []string `arg:"" name:"operation" help:"enroll, transactions, send or account; one or several."`
}

func (*pause) Help() string {
	return `Pauses the queue of an operation until the given time passes or errand resume: new requests wait, calls under
way go on, and no new call begins. Pausing again makes it longer, never shorter. The programs stay ready; errand status,
/readyz and the metric errand_queue_paused show the pause.

A request whose give_up_at passes during a pause ends failed (unavailable) after it. An autoscaler that watches the lag sees it grow.

Examples:

    errand pause enroll --for 30m --why 'the mandate service is being moved'
    errand pause send account --for 2h --why 'INC-4711'`
}

func (p *pause) Run(ctx context.Context, c console) error {
	operations, err := operationsOf("OPERATION", p.Operations)
	if err != nil {
		return err
	}
	if p.For.Duration > act.MaxPause {
		return invalid("--for", "must be at most 7d: requests that wait longer are given up")
	}
	return p.do(ctx, "pause", c, func(person act.Person) error {
		for _, op := range operations {
			until, err := person.Pause(ctx, op, p.For.Duration, p.Why)
			if err != nil {
				return err
			}
			fmt.Fprintf(c.out, "%s is paused until %s\n", op, until.Local().Format(time.DateTime))
			now := time.Now()
			queue, err := inspect.Reader{Conn: person.Conn, JS: person.JS}.Queue(ctx, op, now)
			if err != nil {
				return err
			}
			if outlasts := queue.Outlasts(now); outlasts != "" {
				fmt.Fprintf(c.errs, "errand: %s: %s; errand resume %s ends the pause\n", op, outlasts, inspect.Short(op))
			}
		}
		return nil
	})
}

type resume struct {
	acting
	Operations []string `arg:"" name:"operation" help:"enroll, transactions, send or account; one or several."`
}

func (*resume) Help() string {
	return `Ends the pause of a queue early. The exit status is 1 if the queue is not paused.

Examples:

    errand resume enroll --why 'the mandate service is back'`
}

func (r *resume) Run(ctx context.Context, c console) error {
	operations, err := operationsOf("OPERATION", r.Operations)
	if err != nil {
		return err
	}
	return r.do(ctx, "resume", c, func(person act.Person) error {
		for _, op := range operations {
			if err := person.Resume(ctx, op, r.Why); err != nil {
				return err
			}
			fmt.Fprintf(c.out, "%s is resumed\n", op)
		}
		return nil
	})
}

// operationsOf returns operations by name. The error is an *programs.Invalid.
func operationsOf(variable string, names []string) (all []messages.Operation, err error) {
	for _, name := range names {
		named := func(op messages.Operation) bool { return name == inspect.Short(op) || name == string(op) }
		i := slices.IndexFunc(inspect.Operations, named)
		if i < 0 {
			return nil, invalid(variable, "must be one of enroll, transactions, send, account, got %q", name)
		}
		all = append(all, inspect.Operations[i])
	}
	return all, nil
}

// period is a duration, also in days and weeks.
type period struct{ time.Duration }

func (p *period) UnmarshalText(text []byte) (err error) {
	if p.Duration, err = parseAgo(string(text)); err != nil || p.Duration <= 0 {
		return fmt.Errorf("must be a time such as 30m, 12h or 2d, got %q", text)
	}
	return nil
}
