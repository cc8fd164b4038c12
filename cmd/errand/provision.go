package main

import (
	"bufio"
	"context"
	"fmt"
	"strings"
	"time"

	"errand/internal/app"
	"errand/internal/bus"
)

// provision makes the servers have what the programs need.
type provision struct {
	NATS       bus.Connection `embed:"" group:"nats"`
	bus.Limits `embed:""`

	DryRun bool `env:"PROVISION_DRY_RUN" help:"Only show what would change."`
	Yes    bool `env:"PROVISION_YES" short:"y" help:"Do not ask. Without a terminal nobody is asked anyway."`
	Force  bool `env:"PROVISION_FORCE" help:"Make changes too that may drop messages or stop programs."`
}

// Help is what --help says beside the flags.
func (*provision) Help() string {
	return `Shows what differs from the streams and durable consumers that the programs need, then makes it so. Running it again changes nothing. Settings that errand does not decide stay as the operator left them.

Examples:

    errand provision --dry-run
    errand provision
    errand provision --replicas 3 --max-age 2160h --yes
    errand provision --max-age 24h --force    # shorter than it was: may drop events

Changes that may drop messages are refused without --force; then nothing is changed at all. The options are the whole of it: one that is left out goes back to its default.`
}

// Run shows the plan and applies it.
func (p *provision) Run(ctx context.Context) error { return p.run(ctx, standard()) }

func (p *provision) run(ctx context.Context, c console) error {
	if err := p.check(); err != nil {
		return err
	}
	b, err := connect(ctx, p.NATS, "provision", c.warnings())
	if err != nil {
		return err
	}
	defer b.nc.Close()
	p.MaxPayload = b.nc.MaxPayload()
	plan, err := bus.Plan(ctx, b.js, p.Limits)
	if err != nil {
		return err
	}
	if len(plan) == 0 {
		fmt.Fprintln(c.out, "nothing to change")
		return nil
	}
	destructive := showPlan(c, plan)
	switch {
	case p.DryRun && destructive && !p.Force:
		fmt.Fprintln(c.out, "\nnothing was changed (--dry-run); it would need --force")
		return nil
	case p.DryRun:
		fmt.Fprintln(c.out, "\nnothing was changed (--dry-run)")
		return nil
	case c.asks && !p.Yes && (!destructive || p.Force):
		if !confirmed(c) {
			fmt.Fprintln(c.out, "nothing was changed")
			return nil
		}
	}
	fmt.Fprintln(c.out)
	return bus.Apply(ctx, plan, p.Force, func(change bus.Change) {
		done := "updated"
		if change.Create {
			done = "created"
		}
		fmt.Fprintf(c.out, "%s %s %s\n", done, change.Kind, change.Name)
	})
}

func (p *provision) check() error {
	switch {
	case p.Replicas != 1 && p.Replicas != 3 && p.Replicas != 5:
		return &app.Invalid{Variable: "--replicas", Problem: fmt.Sprintf("is %d, must be 1, 3 or 5", p.Replicas)}
	case p.MaxAge < time.Minute:
		return &app.Invalid{Variable: "--max-age", Problem: "must be a minute or more: a request that is repeated later than that is run again"}
	case p.DeadAge < time.Minute:
		return &app.Invalid{Variable: "--dead-age", Problem: "must be a minute or more"}
	case p.AckWait < time.Second:
		return &app.Invalid{Variable: "--ack-wait", Problem: "must be a second or more: the programs report at a third of it"}
	}
	return nil
}

// showPlan prints the plan and tells whether a part of it is destructive.
func showPlan(c console, plan []bus.Change) (destructive bool) {
	for _, change := range plan {
		head, rest, _ := strings.Cut(change.String(), "\n")
		as := yellow
		switch {
		case change.Destructive:
			as, destructive = red, true
		case change.Create:
			as = green
		}
		fmt.Fprintln(c.out, c.paint(as, head))
		if rest != "" {
			fmt.Fprintln(c.out, rest)
		}
	}
	return destructive
}

func confirmed(c console) bool {
	fmt.Fprint(c.out, "\nApply? [y/N] ")
	answer, _ := bufio.NewReader(c.in).ReadString('\n') // no answer is no
	answer = strings.ToLower(strings.TrimSpace(answer))
	return answer == "y" || answer == "yes"
}
