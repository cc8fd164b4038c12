package main

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"errand/internal/oncall/act"
	"errand/internal/oncall/inspect"
	"errand/internal/programs"
)

type audit struct {
	output
	Verb  string        `placeholder:"VERB" help:"Only this act: redrive, discard, retry, cancel, pause, resume, erase, reveal, suppress, unsuppress."`
	Actor string        `placeholder:"NAME" help:"Only what this person did."`
	Since programs.When `placeholder:"TIME" help:"Since then: 24h, 3d, or a date such as 2026-01-31; default: all 400 days."`
	Limit uint          `default:"50" help:"At most the newest N; 0 for all."`

	Target string `arg:"" optional:"" help:"Only acts on this request id, or queue such as mandate-enroll."`
}

func (*audit) Help() string {
	return `Shows who did what to which request or queue, why, and with what result, newest first. An act is recorded
before it is done and again afterwards. Without the second record, for example because the program was killed, the
result is "unknown"; so it is after an error.

Examples:

    errand audit signup-1                      # who redrove it, and why?
    errand audit --verb pause --since 24h
    errand audit --actor ann --limit 0 -o jsonl | jq -r .why`
}

func (a *audit) Run(ctx context.Context, c console) error {
	q := act.Query{Verb: act.Verb(a.Verb), Actor: a.Actor, Target: a.Target, Limit: int(a.Limit)}
	if a.Verb != "" && !slices.Contains(act.Verbs, q.Verb) {
		return invalid("--verb", "must be one of %s, got %q", joined(act.Verbs), a.Verb)
	}
	return a.read(ctx, "audit", c, func(b broker, now time.Time) (listing, error) {
		q.Since = a.Since.From(now)
		entries, err := act.Acts(ctx, b.Conn, q)
		return listActs(entries, now), err
	})
}

func listActs(entries []act.Entry, now time.Time) listing {
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
		l.add(strconv.FormatUint(e.Sequence, 10), e,
			cell{stamp(e.At.Time, now), dim}, cellOf(e.Actor), cellOf(e.Verb), cellOf(target), resultCell(e), cellOf(why))
	}
	return l
}

func resultCell(e act.Entry) cell {
	switch {
	case e.Suspect != "":
		return cell{string(e.Result), red}
	case e.Result == act.Done:
		return cell{"done", green}
	case e.Result == act.NotDone:
		return cell{strings.TrimPrefix(e.Message, act.ErrNothingDone.Error()+": "), yellow}
	case e.Ended == nil:
		return cell{"unknown", red}
	}
	return cell{"failed: " + e.Message, red}
}
