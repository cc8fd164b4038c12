package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"errand/internal/oncall/act"
	"errand/internal/oncall/inspect"
)

type dead struct {
	List    deadList    `cmd:"" aliases:"ls" help:"List dead letters."`
	Show    deadShow    `cmd:"" help:"Show one with its contents."`
	Redrive deadRedrive `cmd:"" help:"Run requests again; by default only shows the plan."`
}

type deadList struct {
	output
	selection
	Limit uint `default:"50" help:"At most the newest N; 0 for all."`
}

func (*deadList) Help() string {
	return `Lists the messages of requests that ended failed or uncertain, newest first, with each request's current state,
and whether somebody discarded it as needing nothing (-o jsonl says who, and why).

Examples:

    errand dead list --since 24h --reason refused
    errand dead list --limit 0 -o name    # such as seq:17`
}

func (d *deadList) Run(ctx context.Context, c console) error {
	q, err := d.query(time.Now(), d.Limit)
	if err != nil {
		return err
	}
	return d.read(ctx, "dead", c, func(b broker, now time.Time) (listing, error) {
		q.Since = d.Since.From(now)
		letters, err := b.DeadLetters(ctx, q)
		if err == nil {
			err = act.SayDiscarded(ctx, b.Reader, letters)
		}
		return listLetters(letters, now), err
	})
}

func listLetters(letters []inspect.DeadLetter, now time.Time) listing {
	l := listing{head: []string{"LETTER", "TIME", "OPERATION", "REASON", "NOW", "REQUEST", "MESSAGE"}, none: "none"}
	for _, letter := range letters {
		name, is := inspect.Name(letter.Sequence), stateCell(letter.Now)
		if letter.Discarded != "" {
			is = cell{is.text + ", discarded", dim}
		}
		l.add(name, letter, cellOf(name), cell{stamp(letter.Time.Time, now), dim}, cellOf(inspect.Short(letter.Operation)),
			cellOf(letter.Reason), is, cellOf(letter.RequestID), cellOf(letter.Message))
	}
	return l
}

type deadShow struct {
	output
	Name string `arg:"" name:"id" help:"Its name, such as seq:17, or the id of its request."`
}

func (*deadShow) Help() string {
	return `Shows a dead letter: its headers, which say why it exists, and the request as it was published. It holds personal data.

Examples:

    errand dead show enroll-signup-4711
    errand dead show seq:17 -o jsonl | jq .body`
}

func (d *deadShow) Run(ctx context.Context, c console) error {
	if !inspect.IsID(strings.TrimPrefix(d.Name, inspect.BySequence)) {
		return invalid("ID", "must be a sequence such as seq:17, or a request id, got %q", d.Name)
	}
	return d.read(ctx, "dead", c, func(b broker, now time.Time) (listing, error) {
		letters, err := b.DeadLettersOf(ctx, d.Name)
		l := listing{text: func(c console) {
			for _, letter := range letters {
				writeDeadLetter(c, letter, now)
			}
		}}
		for _, letter := range letters {
			l.add(inspect.Name(letter.Sequence), letter.Event)
		}
		return l, err
	})
}

func writeDeadLetter(c console, d inspect.DeadLetter, now time.Time) {
	fmt.Fprintln(c.out, c.paint(bold, fmt.Sprintf("%s  %s, sequence %d", d.Event.Subject, d.Time.In(now.Location()).Format(time.DateTime),
		d.Sequence)))
	for _, name := range slices.Sorted(maps.Keys(d.Event.Headers)) {
		fmt.Fprintf(c.out, "%s: %s\n", printable(name), printable(d.Event.Headers[name]))
	}
	fmt.Fprintf(c.out, "\n%s\n", pretty(d.Event.Message.Data))
}
