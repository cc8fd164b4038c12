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
	"errand/internal/programs"
)

// audit shows what people did.
type audit struct {
	NATS access `embed:"" group:"nats"`
	output
	Verb  string `placeholder:"VERB" help:"Only these acts: redrive, cancel, pause, resume, erase, reveal."`
	Actor string `placeholder:"NAME" help:"Only what this person did."`
	Since when   `placeholder:"TIME" help:"Since then: 90m, 24h, 3d, or a date such as 2026-01-31 or 2026-01-31T08:00. Default: all 400 days."`
	Limit int    `default:"50" help:"The newest so many; 0 for all."`

	Target string `arg:"" optional:"" help:"Only what was done to this request id, or queue such as mandate-enroll."`
}

// Help is shown by --help in addition to the flags.
func (*audit) Help() string {
	return `Shows who did what to which request or queue, why, and how it went, the newest first. An act is recorded before it is done and again after it: one that has no second record, as when its program was killed, is "unknown", and so is one that ended with an error.

Examples:

    errand audit signup-1                      # who redrove it, and why?
    errand audit --verb pause --since 24h
    errand audit --actor ann --limit 0 -o jsonl | jq -r .why`
}

// Run shows them.
func (a *audit) Run(ctx context.Context) error { return a.run(ctx, standard()) }

func (a *audit) run(ctx context.Context, c console) error {
	q := act.Query{Verb: act.Verb(a.Verb), Actor: a.Actor, Target: a.Target, Limit: a.Limit}
	switch {
	case a.Verb != "" && !slices.Contains(act.Verbs, q.Verb):
		return &programs.Invalid{Variable: "--verb", Problem: fmt.Sprintf("%q is none of %s", a.Verb, joined(act.Verbs))}
	case a.Limit < 0:
		return &programs.Invalid{Variable: "--limit", Problem: "must not be negative"}
	}
	return a.read(ctx, a.NATS, "audit", c, func(b broker, c console, now time.Time) error {
		q.Since = a.Since.from(now)
		entries, err := act.Acts(ctx, b.nc, q)
		if err != nil {
			return err
		}
		a.write(c, entries, now)
		return nil
	})
}

func (a *audit) write(c console, entries []act.Entry, now time.Time) {
	l := listing{head: []string{"TIME", "WHO", "DID", "TO", "RESULT", "WHY"}, none: "none"}
	for _, e := range entries {
		why := e.Why
		if e.Suspect != "" {
			why = "SUSPECT, " + e.Suspect + ": " + why
		}
		target := e.Target
		if e.Operation != "" && e.Verb != act.Pause && e.Verb != act.Resume {
			target = inspect.Short(e.Operation) + " " + target
		}
		l.rows = append(l.rows, []cell{{stamp(e.At.Time, now), dim}, cellOf(e.Actor), cellOf(string(e.Verb)), cellOf(target), resultCell(e), cellOf(why)})
		l.names, l.values = append(l.names, strconv.FormatUint(e.Sequence, 10)), append(l.values, e)
	}
	a.show(c, l)
}

// resultCell is how an act went; of one that was not done, why.
func resultCell(e act.Entry) cell {
	switch {
	case e.Suspect != "":
		return cell{string(e.Result), red}
	case e.Result == act.Done:
		return cell{"done", green}
	case e.Result == act.NotDone:
		return cell{strings.TrimPrefix(e.Message, act.ErrNothingDone.Error()+": "), yellow}
	case e.Ended == nil:
		return cell{"not known how it went", red}
	}
	return cell{"failed: " + e.Message, red}
}
