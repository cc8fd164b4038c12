package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"errand/internal/bus"
	"errand/internal/programs"
)

// provision creates and updates the streams and consumers that the programs need. A limit that is left out stays as it is.
type provision struct {
	NATS access `embed:"" group:"nats"`

	Replicas *int            `env:"PROVISION_REPLICAS" placeholder:"N" help:"Copies of each stream: 1, 3 or 5; new: like the others, or 1."`
	MaxAge   *time.Duration  `env:"PROVISION_MAX_AGE" placeholder:"720h" help:"How long events are kept; new: like the others, or 720h."`
	AckWait  *time.Duration  `env:"PROVISION_ACK_WAIT" placeholder:"30s" help:"How long a silent worker keeps a request; new: 30s."`
	MaxBytes *programs.Sizes `env:"PROVISION_MAX_BYTES" placeholder:"10G" help:"Size of each stream, or STREAM=SIZE,…; see below."`

	Lanes programs.Lanes `env:"LANES" placeholder:"default,bulk" help:"Lanes that requests can be published to, as the programs' LANES; none is ever removed."`

	Reader []string `env:"PROVISION_READER" placeholder:"NAME" help:"Also serve this reader's account; see errand mirror --help."`

	Users []string `env:"PROVISION_USERS" placeholder:"NAME" help:"Further NATS users whose passwords are tried; see below."`

	Missing bool `env:"PROVISION_MISSING" help:"Only create what is missing; change nothing that exists."`
	Repair  bool `env:"PROVISION_REPAIR" help:"Also start queues over that have forgotten requests."`
	consent `embed:"" envprefix:"PROVISION_"`
}

func (*provision) Help() string {
	return `Shows the differences from the streams and durable consumers that the programs need, then applies them.
Running it again changes nothing. A limit that is left out stays as it is, and so do settings that errand does not
manage. A new stream gets the limits of the other streams.

First it tries each user of deploy/nats, and of --users, without a password and with a wrong one. If the servers let one
in, nothing is changed: its password is another one to nats-server than you think.

--max-age is also how long a repeated request is recognized. --max-bytes takes K, M, G or T for powers of 1024, or
none, and with STREAM= the size of one stream; the servers reserve that much, and a full stream refuses new messages.

Examples:

    errand provision --dry-run
    errand provision --missing --repair       # what exists stays as it is; queues deliver what they have forgotten
    errand provision --replicas 3 --max-age 2160h --yes
    errand provision --lanes default,bulk     # also mail.send.requested.lane.bulk and mandate.enroll.requested.lane.bulk
    errand provision --max-bytes 2G,MANDATE_EVENTS=30G,MAIL_DELIVERIES=none
    errand provision --reader service         # and then, as a user of that account: errand mirror service
    errand provision --max-age 24h --force    # shorter than before: may drop events

Without --force, nothing is changed at all if a change may drop messages, leaves a stream no room for its messages, or
has a queue deliver requests whose history is younger than they are.`
}

func (p *provision) Run(ctx context.Context, c console) error {
	limits, err := p.limits()
	if err != nil {
		return err
	}
	return p.NATS.with(ctx, "provision", c, func(b broker) error { return p.provision(ctx, c, b, limits) })
}

func (p *provision) provision(ctx context.Context, c console, b broker, limits bus.Limits) error {
	if err := p.tryPasswords(c); err != nil {
		return err
	}
	limits.MaxPayload = b.Conn.MaxPayload()
	plan, err := bus.Plan(ctx, b.JS, limits)
	if err != nil {
		return err
	}
	feeds, err := bus.PlanReaders(ctx, b.JS, p.Reader)
	if err != nil {
		return err
	}
	plan = append(plan, feeds...)
	if p.Missing {
		plan = onlyMissing(c, plan)
	}
	if p.Repair {
		repairs, err := bus.PlanRepairs(ctx, b.JS)
		if err != nil {
			return err
		}
		plan = append(plan, repairs...)
	}
	for _, name := range bus.WithoutHistory(plan) {
		fmt.Fprintln(c.out, c.paint(yellow,
			name+" is created again although there are requests: it knows nothing of earlier runs, so a request that waits or is published again "+
				"runs again. Before the programs start again, see docs/on-call/disaster.md"))
	}
	return p.carryOut(ctx, c, plan)
}

// tryPasswords refuses to go on when the servers let in a user without its password. Servers without users are for development.
func (p *provision) tryPasswords(c console) error {
	to, err := p.NATS.Resolve()
	if err != nil {
		return err
	}
	err = bus.TryPasswords(to, slices.Concat(bus.Users, p.Users))
	if errors.Is(err, bus.ErrNoPasswords) {
		fmt.Fprintln(c.errs, c.paint(yellow, "warning: "+err.Error()))
		return nil
	}
	return err
}

// onlyMissing drops changes to what exists, and names them.
func onlyMissing(c console, plan []bus.Change) []bus.Change {
	var differ []string
	plan = slices.DeleteFunc(plan, func(change bus.Change) bool {
		if !change.Adds() {
			differ = append(differ, change.Kind+" "+change.Name)
		}
		return !change.Adds()
	})
	if len(differ) > 0 {
		fmt.Fprintln(c.out, "left unchanged though they differ: "+strings.Join(differ, ", ")+"; --dry-run instead of --missing shows how")
	}
	return plan
}

// consent is a person's consent to changes.
type consent struct {
	DryRun bool `env:"DRY_RUN" help:"Only show what would change."`
	Yes    bool `env:"YES" short:"y" help:"Do not ask for confirmation. Without a terminal there is no question."`
	Force  bool `env:"FORCE" help:"Also make changes that may drop messages, stop programs or run requests again."`
}

// carryOut shows a plan and applies it with consent.
func (given consent) carryOut(ctx context.Context, c console, plan []bus.Change) error {
	if len(plan) == 0 {
		fmt.Fprintln(c.out, "nothing to change")
		return nil
	}
	destructive := showPlan(c, plan)
	switch {
	case given.DryRun && destructive && !given.Force:
		fmt.Fprintln(c.out, "\nnothing was changed (--dry-run); the changes need --force")
		return nil
	case given.DryRun:
		fmt.Fprintln(c.out, "\nnothing was changed (--dry-run)")
		return nil
	case c.interactive && !given.Yes && (!destructive || given.Force) && !confirmed(c):
		fmt.Fprintln(c.out, "nothing was changed")
		return nil
	}
	fmt.Fprintln(c.out)
	return bus.Apply(ctx, plan, given.Force, func(change bus.Change) {
		done := "updated"
		if change.Create {
			done = "created"
		}
		fmt.Fprintf(c.out, "%s %s %s\n", done, change.Kind, change.Name)
	})
}

// limits returns the given limits. The error is an *programs.Invalid.
func (p *provision) limits() (l bus.Limits, err error) {
	l, err = limits(p.Replicas, p.MaxAge, "PROVISION", "a request that is repeated after that time runs again")
	if err != nil {
		return l, err
	}
	if p.AckWait != nil {
		if l.AckWait = *p.AckWait; l.AckWait < time.Second {
			return l, invalid("--ack-wait (PROVISION_ACK_WAIT)", "must be a second or more: the programs send progress after a third of it")
		}
	}
	if p.MaxBytes != nil {
		l.MaxBytes, l.MaxBytesOf = p.MaxBytes.Each, p.MaxBytes.Of
	}
	l.Lanes = p.Lanes.Names()
	for _, reader := range p.Reader {
		if !bus.ValidReader(reader) {
			return l, invalid("--reader (PROVISION_READER)", "must be up to 32 letters, digits, - and _, got %q", reader)
		}
	}
	return l, nil
}

// limits are the limits that provision and mirror have in common; what was not chosen is 0.
func limits(replicas *int, maxAge *time.Duration, env, tooShort string) (l bus.Limits, err error) {
	if replicas != nil {
		l.Replicas = *replicas
	}
	if maxAge != nil {
		l.MaxAge = *maxAge
	}
	switch {
	case replicas != nil && l.Replicas != 1 && l.Replicas != 3 && l.Replicas != 5:
		err = invalid("--replicas ("+env+"_REPLICAS)", "must be 1, 3 or 5, got %d", l.Replicas)
	case maxAge != nil && l.MaxAge < time.Minute:
		err = invalid("--max-age ("+env+"_MAX_AGE)", "must be a minute or more: %s", tooShort)
	}
	return l, err
}

// showPlan prints the plan and reports whether any part of it is destructive.
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
	answer, _ := bufio.NewReader(c.in).ReadString('\n') // no answer is a no
	answer = strings.ToLower(strings.TrimSpace(answer))
	return answer == "y" || answer == "yes"
}
