package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"errand/internal/bus"
	"errand/internal/oncall/act"
	"errand/internal/oncall/inspect"
	"errand/internal/programs"
	"errand/pkg/messages"
)

type pause struct {
	acting
	For        programs.Period `required:"" placeholder:"TIME" help:"How long: 30m, 12h, 2d; at most a week."`
	Operations []string        `arg:"" name:"operation" help:"enroll, transactions, send or account, with its lanes, or one lane of it such as send/bulk or send/default; several."`
}

func (*pause) Help() string {
	return `Pauses the queue of an operation until the given time passes or errand resume: new requests wait, calls under
way go on, and no new call begins. Pausing again makes it longer, never shorter. The programs stay ready; errand status,
/readyz and the metric errand_queue_paused show the pause.

A request whose give_up_at passes during a pause ends failed (unavailable) after it. An autoscaler that watches the lag sees it grow.

Examples:

    errand pause enroll --for 30m --why 'the mandate service is being moved'
    errand pause send account --for 2h --why 'INC-4711'
    errand pause send/bulk --for 1h --why 'the newsletter has a mistake'`
}

func (p *pause) Run(ctx context.Context, c console) error {
	names, err := lanesOf(p.Operations)
	if err != nil {
		return err
	}
	if p.For.Duration <= 0 || p.For.Duration > act.MaxPause {
		return invalid("--for", "must be at most 7d, and more than 0: requests that wait longer are given up")
	}
	return p.do(ctx, "pause", c, func(person act.Person) error {
		return eachQueue(ctx, person, c, names, func(r inspect.Reader, q bus.Queue) error {
			until, err := person.Pause(ctx, q, p.For.Duration, p.Why)
			if err != nil {
				return err
			}
			fmt.Fprintf(c.out, "%s is paused until %s\n", q, until.Local().Format(time.DateTime))
			now := time.Now()
			queue, err := r.Queue(ctx, q, now)
			if err != nil {
				return err
			}
			if outlasts := queue.Outlasts(now); outlasts != "" {
				fmt.Fprintf(c.errs, "errand: %s: %s; errand resume %s/%s --why REASON ends the pause\n", q, outlasts, inspect.Short(q.Operation()),
					q.LaneName())
			}
			return nil
		})
	})
}

type resume struct {
	acting
	Operations []string `arg:"" name:"operation" help:"As for errand pause."`
}

func (*resume) Help() string {
	return `Ends the pause of a queue early. The exit status is 1 if the queue is not paused.

Examples:

    errand resume enroll --why 'the mandate service is back'`
}

func (r *resume) Run(ctx context.Context, c console) error {
	names, err := lanesOf(r.Operations)
	if err != nil {
		return err
	}
	return r.do(ctx, "resume", c, func(person act.Person) error {
		return eachQueue(ctx, person, c, names, func(_ inspect.Reader, q bus.Queue) error {
			err := person.Resume(ctx, q, r.Why)
			if err == nil {
				fmt.Fprintf(c.out, "%s is resumed\n", q)
			}
			return err
		})
	})
}

// laneOf is an operation, and one of its lanes or "" for all.
type laneOf struct {
	operation messages.Operation
	lane      string
}

// lanesOf returns operations by name, each with /LANE or all of its lanes. The error is an *programs.Invalid.
func lanesOf(names []string) (all []laneOf, err error) {
	for _, name := range names {
		short, lane, _ := strings.Cut(name, "/")
		ops, err := operationsOf("OPERATION", []string{short})
		if err != nil {
			return nil, err
		}
		all = append(all, laneOf{ops[0], lane})
	}
	return all, nil
}

// eachQueue calls f with the queues of lanes. One that is not paused does not keep the others from being resumed.
func eachQueue(ctx context.Context, person act.Person, c console, names []laneOf, f func(inspect.Reader, bus.Queue) error) error {
	r := inspect.Reader{Conn: person.Conn, JS: person.JS}
	for _, name := range names {
		queues, err := r.Lanes(ctx, name.operation)
		if err != nil {
			return err
		}
		if name.lane != "" {
			queues = slices.DeleteFunc(queues, func(q bus.Queue) bool { return q.LaneName() != name.lane })
		}
		if len(queues) == 0 {
			return invalid("OPERATION", "%s has no lane %q; errand status shows its lanes", inspect.Short(name.operation), name.lane)
		}
		nothing := 0
		for _, q := range queues {
			switch err := f(r, q); {
			case errors.Is(err, act.ErrNothingDone) && nothing < len(queues)-1:
				nothing++
				fmt.Fprintln(c.errs, "errand:", err)
			case err != nil:
				return err
			}
		}
	}
	return nil
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
