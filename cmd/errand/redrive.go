package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"errand/internal/oncall/act"
	"errand/internal/oncall/inspect"
	"errand/internal/programs"
	"errand/pkg/messages"
)

// deadRedrive has dead letters run again.
type deadRedrive struct {
	acting
	format
	Operation []string `name:"op" placeholder:"OPERATION" help:"Of one of these operations: enroll, transactions, send, account."`
	Reason    []string `placeholder:"REASON" help:"For one of these reasons, such as refused,unavailable."`
	Since     when     `placeholder:"TIME" help:"Stored since then: 90m, 24h, 3d, or a date."`
	Limit     int      `default:"0" help:"The newest so many; 0 for all."`

	Yes         bool     `help:"Do it; without it the plan is shown and nothing is done."`
	AcceptTwice []string `placeholder:"ID" help:"Run these though they may be done twice: request ids or sequences, or all. Of a message, its batches of unknown fate too."`
	Force       []string `placeholder:"ID" help:"Run these though they were done or cancelled: request ids or sequences."`
	Rate        float64  `placeholder:"N" help:"At most so many a second."`
	Names       []string `arg:"" optional:"" name:"id" help:"Request ids or sequences of dead letters; none: those that --op, --reason and --since choose."`
}

// Help is shown by --help in addition to the flags.
func (*deadRedrive) Help() string {
	return `Has requests that ended failed, uncertain or partial run again, under their own ids and with the bytes that were published. First it shows its plan, and does nothing:

    safe               no call had an effect
    may_be_done_twice  a call of unknown fate is behind it, its events have
                       expired, or another request was published with its
                       Nats-Msg-Id: run where --accept-twice names it.
                       An enrollment is looked up in the transaction list
                       right before its call, and not called where it is
                       listed; of a message, the batches that were not
                       accepted are sent without that too
    was_done           it was found out that it was done, or its order
                       number is listed: not run, unless --force names it
    cancelled          a person withdrew it: likewise
    open, superseded   it runs or waits already, or has gone on since:
                       there is nothing to do
    reopened           whoever redrove it was interrupted: it is published
    cannot_run         a conflict with a request_id of its own, for one:
                       publish it under another id

With --yes and --why it is done, one after the other, and the result of each is shown. A number is a sequence or a request id; where it is both, seq:17 is the sequence 17. What changed since the plan is left alone; of two who do it at once one does, and whatever was interrupted is finished by doing it again. A message sends the batches alone that were not accepted. A give_up_at that has passed does not count: the time begins again. The exit status is 1 when something was not run that is not open either.

Examples:

    errand dead redrive --reason unavailable --since 24h                              # the plan
    errand dead redrive --reason unavailable --since 24h --yes --why 'the service is back' --rate 5
    errand dead redrive enroll-signup-4711 --yes --why INC-17 --accept-twice enroll-signup-4711
    errand dead redrive 17 18 -o json | jq '.[] | {request_id, class, says}'`
}

// Run redrives.
func (d *deadRedrive) Run(ctx context.Context) error { return d.run(ctx, standard()) }

func (d *deadRedrive) run(ctx context.Context, c console) error {
	q, err := d.query()
	if err != nil {
		return err
	}
	var b broker
	var person act.Person
	if d.Yes {
		b, person, err = d.open(ctx, "redrive", c)
	} else if b, err = d.NATS.open(ctx, "redrive", c); err == nil {
		person, err = d.person(b)
	}
	if err != nil {
		return err
	}
	defer b.nc.Close()
	requests := person.Requests()
	letters, err := requests.Letters(ctx, d.Names, q, time.Now())
	if err != nil {
		return b.unanswered(err)
	}
	items, err := requests.Plan(ctx, letters)
	if err != nil {
		return b.unanswered(err)
	}
	if !d.Yes {
		d.plan(c, items)
		return nil
	}
	done, err := d.redrive(ctx, c, requests, items)
	if err != nil {
		return b.unanswered(err)
	}
	return d.conclude(c, done)
}

// query is which dead letters are asked for.
func (d *deadRedrive) query() (inspect.Query, error) {
	s := selection{Operation: d.Operation, Reason: d.Reason, Since: d.Since, Limit: d.Limit}
	q, err := s.query(time.Now())
	some := len(d.Operation)+len(d.Reason) > 0 || d.Since.isSet()
	switch {
	case err != nil:
		return q, err
	case len(d.Names) == 0 && !some:
		return q, &programs.Invalid{Variable: "ID", Problem: "name request ids or sequences (errand dead list), or choose by --reason, --op or --since"}
	case len(d.Names) > 0 && some:
		return q, &programs.Invalid{Variable: "ID", Problem: "is not together with --reason, --op and --since"}
	case d.Rate < 0:
		return q, &programs.Invalid{Variable: "--rate", Problem: "must be positive"}
	}
	for _, name := range d.Names {
		if !messages.IsID(strings.TrimPrefix(name, inspect.BySequence)) {
			return q, &programs.Invalid{Variable: "ID", Problem: fmt.Sprintf("%q is neither a sequence nor a request id", name)}
		}
	}
	return q, nil
}

// plan shows what would be done.
func (d *deadRedrive) plan(c console, items []act.Item) {
	l := listing{head: []string{"SEQUENCE", "OPERATION", "CLASS", "REASON", "REQUEST", "WHY"}, none: "no dead letters"}
	classes := map[inspect.Class]int{}
	for _, i := range items {
		classes[i.Class]++
		l.rows = append(l.rows, []cell{cellOf(strconv.FormatUint(i.Sequence, 10)), cellOf(inspect.Short(i.Operation)), {string(i.Class), colours[i.Class.Info().Look]},
			cellOf(string(i.Reason)), cellOf(i.RequestID), cellOf(i.Says)})
		l.names, l.values = append(l.names, i.RequestID), append(l.values, i)
	}
	d.show(c, l)
	if d.Output != "table" || len(items) == 0 {
		return
	}
	var said []string
	for _, info := range inspect.Classes {
		if n := classes[info.Class]; n > 0 {
			said = append(said, fmt.Sprintf("%d %s", n, info.Class))
		}
	}
	fmt.Fprintf(c.out, "\n%s. Nothing was done: --yes --why REASON runs what is safe", strings.Join(said, ", "))
	if classes[inspect.Twice] > 0 {
		fmt.Fprint(c.out, ", --accept-twice ID what may be done twice")
	}
	fmt.Fprintln(c.out, ".")
}

// redrive does it, and shows each result as it comes.
func (d *deadRedrive) redrive(ctx context.Context, c console, requests act.Requests, items []act.Item) (done []act.Redriven, err error) {
	consent := act.Consent{Why: d.Why, Accept: d.AcceptTwice, Force: d.Force, Rate: d.Rate}
	err = requests.Redrive(ctx, items, consent, func(r act.Redriven) {
		done = append(done, r)
		switch d.Output {
		case "table":
			as := map[act.Result]colour{act.Done: green, act.NotDone: yellow, act.Unknown: red}[r.Result]
			fmt.Fprintf(c.out, "%*d/%d  %s  %s  %s\n", len(strconv.Itoa(len(items))), len(done), len(items), c.paint(as, pad(string(r.Result), 8)), printable(r.RequestID), printable(r.Message))
		case "jsonl":
			fmt.Fprintln(c.out, encoded(r, false))
		case "name":
			if r.Result == act.Done {
				fmt.Fprintln(c.out, printable(r.RequestID))
			}
		}
	})
	if d.Output == "json" {
		l := listing{whole: done}
		if done == nil {
			l.whole = []any{}
		}
		d.show(c, l)
	}
	return done, err
}

// conclude counts the results. The error says that some were not run.
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
	if left > 0 {
		return errors.New(strconv.Itoa(left) + " were not: see each result")
	}
	return nil
}
