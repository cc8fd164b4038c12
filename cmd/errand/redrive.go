package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"errand/internal/oncall/act"
	"errand/internal/oncall/inspect"
)

type deadRedrive struct {
	acting
	format
	selection
	Limit uint `help:"At most the newest N; default: all."`

	Yes         bool     `help:"Do it; otherwise only the plan is shown."`
	Plan        string   `placeholder:"PLAN" help:"The plan that was shown: nothing else is run. Required with --yes."`
	AcceptTwice []string `placeholder:"seq:N" help:"Run these of the plan, or all, though they may be done twice."`
	Force       []string `placeholder:"seq:N" help:"Run these of the plan though they were done or cancelled."`
	Rate        float64  `placeholder:"N" help:"At most N per second."`
	Names       []string `arg:"" optional:"" name:"id" help:"Request ids, or dead letters such as seq:17; default: chosen by --op, --reason, --since."`
}

func (*deadRedrive) Help() string {
	var classes strings.Builder
	for _, c := range inspect.Classes {
		fmt.Fprintf(&classes, "    %-17s  %s%s\n", c.Class, c.Means, only[c.Run])
	}
	return `Runs requests that ended failed, uncertain or partial again, with their ids and bytes as published. Without
--yes it only shows its plan:

` + classes.String() + `
What may be done twice: an enrollment is called only if the transaction list proves that it was not taken; a message
sends its unaccepted batches even without --accept-twice.

With --yes, --why and --plan, which the plan ends with, the requests run one after the other, and each result is shown.
What you agree to is what you have read: a plan is of certain dead letters, and names them by their sequences (seq:17).
Later ones are left alone, and counted. So is a request that changed since the plan. Two
redrives at once do not run a request twice, and an interrupted one is finished by running it again. A message sends
only batches that were not accepted. A give_up_at that has passed starts again. The exit status is 1 if a request that
is not open was not run.

Examples:

    errand dead redrive --reason unavailable --since 24h                              # the plan
    errand dead redrive --reason unavailable --since 24h --yes --plan 12-17-4791c176 --why 'it is back'
    errand dead redrive enroll-signup-4711 --yes --plan 16-16-0b11c9d2 --why INC-17 --accept-twice seq:16
    errand dead redrive seq:17 seq:18 -o json | jq '.[] | {request_id, class, says}'`
}

func (d *deadRedrive) Run(ctx context.Context, c console) error {
	q, err := d.query()
	if err != nil {
		return err
	}
	return d.do(ctx, "redrive", c, d.Yes, func(person act.Person) error {
		requests := person.Requests()
		letters, err := requests.Letters(ctx, d.Names, q)
		if err != nil {
			return err
		}
		items, err := requests.Plan(ctx, letters)
		switch {
		case err != nil:
			return err
		case !d.Yes:
			d.plan(c, items)
			return nil
		case len(items) == 0 || act.PlanID(items) != d.Plan:
			return fmt.Errorf("nothing was done: these are no longer the dead letters of plan %s: run the command without --yes again", d.Plan)
		}
		done, err := d.redrive(ctx, c, requests, items)
		if err != nil {
			return err
		}
		if len(d.Names) == 0 {
			q.From, q.Through = q.Through+1, 0
			if letters, err = requests.Letters(ctx, nil, q); err == nil && len(letters) > 0 {
				fmt.Fprintf(c.errs, "%d more came since the plan, and were left alone\n", len(letters))
			}
		}
		return d.conclude(c, done)
	})
}

var notThePlan = invalid("--plan", "must be what the plan ends with: run the command without --yes first, and read it")

func (d *deadRedrive) query() (inspect.Query, error) {
	q, err := d.selection.query(time.Now(), d.Limit)
	some := len(d.Operation)+len(d.Reason) > 0 || d.Since.IsSet()
	switch {
	case err != nil:
		return q, err
	case len(d.Names) == 0 && !some:
		return q, invalid("ID", "must be request ids or sequences (errand dead list), or choose by --reason, --op or --since")
	case len(d.Names) > 0 && some:
		return q, invalid("ID", "must not be used together with --reason, --op and --since")
	case d.Rate < 0:
		return q, invalid("--rate", "must be positive")
	case d.Plan != "":
		q.Since = time.Time{} // it was of the plan's time
		if _, err := fmt.Sscanf(d.Plan, "%d-%d-", &q.From, &q.Through); err != nil {
			return q, notThePlan
		}
	case d.Yes:
		return q, notThePlan
	}
	for _, name := range d.Names {
		if !inspect.IsID(strings.TrimPrefix(name, inspect.BySequence)) {
			return q, invalid("ID", "must be a sequence such as seq:17, or a request id, got %q", name)
		}
	}
	return q, nil
}

// What --yes runs, and what it runs only if it is named.
var (
	ways = map[inspect.Run]string{inspect.RunsAsked: "what is safe", inspect.RunsAccepted: "with --accept-twice seq:N what may be done twice",
		inspect.RunsForced: "with --force seq:N what was done, withdrawn or not valid"}
	only = map[inspect.Run]string{inspect.RunsAccepted: ": if --accept-twice names it", inspect.RunsForced: ": if --force names it"}
)

func (d *deadRedrive) plan(c console, items []act.Item) {
	l := listing{head: []string{"LETTER", "OPERATION", "CLASS", "REASON", "REQUEST", "WHY"}, none: "no dead letters"}
	classes := map[inspect.Class]int{}
	for _, i := range items {
		classes[i.Class]++
		l.add(i.RequestID, i, cellOf(inspect.Name(i.Sequence)), cellOf(inspect.Short(i.Operation)),
			cell{string(i.Class), colours[i.Class.Info().Look]},
			cellOf(i.Reason), cellOf(i.RequestID), cellOf(i.Says))
	}
	if len(items) == 0 {
		d.show(c, l)
		return
	}
	said, can := []string{}, []string{}
	for _, info := range inspect.Classes {
		if n := classes[info.Class]; n > 0 {
			said = append(said, fmt.Sprintf("%d %s", n, info.Class))
			if how := ways[info.Run]; how != "" && !slices.Contains(can, how) {
				can = append(can, how)
			}
		}
	}
	text := strings.Join(said, ", ") + ". Nothing was done"
	if len(can) > 0 {
		text += ": --yes --plan " + act.PlanID(items) + " --why REASON runs " + strings.Join(can, ", ")
	}
	l.text = func(c console) { fmt.Fprintf(c.out, "\n%s.\n", text) }
	if d.show(c, l); d.Output != "table" {
		fmt.Fprintln(c.errs, text)
	}
}

func (d *deadRedrive) redrive(ctx context.Context, c console, requests act.Requests, items []act.Item) (done []act.Redriven, err error) {
	consent := act.Consent{Why: d.Why, Accept: d.AcceptTwice, Force: d.Force, Rate: d.Rate}
	l := listing{}
	err = requests.Redrive(ctx, items, consent, func(r act.Redriven) {
		if done = append(done, r); d.Output != "name" || r.Result == act.Done {
			l.add(r.RequestID, r)
		}
		if d.Output == "table" {
			as := map[act.Result]colour{act.Done: green, act.NotDone: yellow, act.Unknown: red}[r.Result]
			fmt.Fprintf(c.out, "%*d/%d  %s  %s  %s\n", len(strconv.Itoa(len(items))), len(done), len(items),
				c.paint(as, pad(string(r.Result), 8)), printable(r.RequestID), printable(r.Message))
		}
	})
	if d.Output != "table" {
		d.show(c, l)
	}
	return done, err
}

// conclude counts the results. It returns an error if some were not run.
func (d *deadRedrive) conclude(c console, done []act.Redriven) error {
	n, left := 0, 0
	for _, r := range done {
		switch {
		case r.Result == act.Done:
			n++
		case r.Class != inspect.Underway && r.Class != inspect.Superseded:
			left++
		}
	}
	fmt.Fprintf(c.errs, "%d of %d run again\n", n, len(done))
	if left == 0 {
		return nil
	}
	return fmt.Errorf("%d not run again: see what is said of each", left)
}
