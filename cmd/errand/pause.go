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
	if p.For.Duration <= 0 || p.For.Duration > act.MaxPause {
		return invalid("--for", "must be at most 7d, and more than 0: requests that wait longer are given up")
	}
	return p.eachQueue(ctx, "pause", c, p.Operations, func(person act.Person, q bus.Queue) error {
		until, err := person.Pause(ctx, q, p.For.Duration, p.Why)
		if err == nil {
			fmt.Fprintf(c.out, "%s is paused until %s\n", q, until.Local().Format(time.DateTime))
		}
		return err
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
	return r.eachQueue(ctx, "resume", c, r.Operations, func(person act.Person, q bus.Queue) error {
		err := person.Resume(ctx, q, r.Why)
		if err == nil {
			fmt.Fprintf(c.out, "%s is resumed\n", q)
		}
		return err
	})
}

// eachQueue calls f with the queues of operations, each named with /LANE or all of its lanes. One that is not paused does not keep the
// others from being resumed.
func (a acting) eachQueue(ctx context.Context, command string, c console, names []string, f func(act.Person, bus.Queue) error) error {
	shorts, lanes := make([]string, len(names)), make([]string, len(names))
	for i, name := range names {
		shorts[i], lanes[i], _ = strings.Cut(name, "/")
	}
	ops, err := operationsOf("OPERATION", shorts)
	if err != nil {
		return err
	}
	return a.do(ctx, command, c, true, func(person act.Person) error {
		r := inspect.Reader{Conn: person.Conn, JS: person.JS}
		for i, op := range ops {
			queues, err := r.Lanes(ctx, op)
			if err != nil {
				return err
			}
			queues = slices.DeleteFunc(queues, func(q bus.Queue) bool { return lanes[i] != "" && q.LaneName() != lanes[i] })
			if len(queues) == 0 {
				return invalid("OPERATION", "%s has no lane %q; errand status shows its lanes", inspect.Short(op), lanes[i])
			}
			nothing := 0
			for _, q := range queues {
				switch err := f(person, q); {
				case errors.Is(err, act.ErrNothingDone) && nothing < len(queues)-1:
					nothing++
					fmt.Fprintln(c.errs, "errand:", err)
				case err != nil:
					return err
				}
			}
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
