package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"errand/internal/oncall/act"
	"errand/internal/oncall/inspect"
	"errand/internal/programs"
	"errand/pkg/messages"
)

// pause has queues give out nothing for a while.
type pause struct {
	acting
	For        period   `required:"" placeholder:"TIME" help:"For how long: 30m, 12h, 2d; at most a week. There is no pause without an end."`
	Operations []string `arg:"" name:"operation" help:"enroll, transactions, send or account; several are paused one after the other."`
}

// Help is shown by --help in addition to the flags.
func (*pause) Help() string {
	return `Pauses the queue of an operation: requests are taken in and wait, calls that are under way go on, and no new one begins until the end of the pause or errand resume. A queue that is paused already is paused until the new end. The programs stay ready; errand status, /readyz and the metric errand_queue_paused say that there is a pause.

A request whose give_up_at passes during a pause ends failed (unavailable) after it. A scaler by lag sees the backlog grow.

Examples:

    errand pause enroll --for 30m --why 'the mandate service is being moved'
    errand pause send account --for 2h --why 'INC-4711'`
}

// Run pauses.
func (p *pause) Run(ctx context.Context) error { return p.run(ctx, standard()) }

func (p *pause) run(ctx context.Context, c console) error {
	operations, err := operationsOf("OPERATION", p.Operations)
	if err != nil {
		return err
	}
	if p.For.Duration > act.MaxPause {
		return &programs.Invalid{Variable: "--for", Problem: "must be at most 7d: requests that wait longer are given up"}
	}
	b, person, err := p.open(ctx, "pause", c)
	if err != nil {
		return err
	}
	defer b.nc.Close()
	for _, op := range operations {
		until, err := person.Pause(ctx, op, p.For.Duration, p.Why)
		if err != nil {
			return b.unanswered(err)
		}
		fmt.Fprintf(c.out, "%s is paused until %s\n", op, until.Local().Format(time.DateTime))
	}
	return nil
}

// resume ends pauses.
type resume struct {
	acting
	Operations []string `arg:"" name:"operation" help:"enroll, transactions, send or account; one or several."`
}

// Help is shown by --help in addition to the flags.
func (*resume) Help() string {
	return `Ends the pause of a queue before its time. The exit status is 1 when it is not paused.

Examples:

    errand resume enroll --why 'the mandate service is back'`
}

// Run resumes.
func (r *resume) Run(ctx context.Context) error { return r.run(ctx, standard()) }

func (r *resume) run(ctx context.Context, c console) error {
	operations, err := operationsOf("OPERATION", r.Operations)
	if err != nil {
		return err
	}
	b, person, err := r.open(ctx, "resume", c)
	if err != nil {
		return err
	}
	defer b.nc.Close()
	for _, op := range operations {
		if err := person.Resume(ctx, op, r.Why); err != nil {
			return b.unanswered(err)
		}
		fmt.Fprintf(c.out, "%s is resumed\n", op)
	}
	return nil
}

// operationsOf are operations by name; an *programs.Invalid names one that is none.
func operationsOf(variable string, names []string) (all []messages.Operation, err error) {
	for _, name := range names {
		i := slices.IndexFunc(inspect.Operations, func(op messages.Operation) bool { return name == inspect.Short(op) || name == string(op) })
		if i < 0 {
			return nil, &programs.Invalid{Variable: variable, Problem: fmt.Sprintf("%q is none of enroll, transactions, send, account", name)}
		}
		all = append(all, inspect.Operations[i])
	}
	return all, nil
}

// period is a length of time, in days and weeks too.
type period struct{ time.Duration }

// UnmarshalText reads one.
func (p *period) UnmarshalText(text []byte) (err error) {
	if p.Duration, err = parseAgo(string(text)); err != nil || p.Duration <= 0 {
		return fmt.Errorf("%q is no time such as 30m, 12h or 2d", text)
	}
	return nil
}
