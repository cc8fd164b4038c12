package main

import (
	"bufio"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/programs"
)

// provision creates and updates the streams and consumers that the programs need. A limit
// that is not given stays as it is.
type provision struct {
	NATS access `embed:"" group:"nats"`

	Replicas *int           `env:"PROVISION_REPLICAS" placeholder:"N" help:"Copies of each stream: 1, 3 or 5. Default for a new stream: as many as the other streams, or 1."`
	MaxAge   *time.Duration `env:"PROVISION_MAX_AGE" placeholder:"720h" help:"How long events and dead letters are kept: also how long a repeated request is recognised. Default for a new stream: as long as the other events, or 720h."`
	AckWait  *time.Duration `env:"PROVISION_ACK_WAIT" placeholder:"30s" help:"How long a silent consumer keeps a request before another one gets it. Default for a new consumer: that of the other consumers, or 30s."`
	MaxBytes *sizes         `env:"PROVISION_MAX_BYTES" placeholder:"10G" help:"Maximum bytes of each stream, with K, M, G or T for powers of 1024, or none; STREAM=SIZE for one of them, several with commas. The servers reserve that much. A full stream refuses new messages and drops none. Default for a new stream: as many as the other streams, or no limit."`

	Reader []string `env:"PROVISION_READER" placeholder:"NAME" help:"Also create what sends events to the account of this reader; may be repeated. See errand mirror --help."`

	Missing bool `env:"PROVISION_MISSING" help:"Only create what is missing; change nothing that exists."`
	DryRun  bool `env:"PROVISION_DRY_RUN" help:"Only show what would change."`
	Yes     bool `env:"PROVISION_YES" short:"y" help:"Do not ask for confirmation. Without a terminal there is no question."`
	Force   bool `env:"PROVISION_FORCE" help:"Also make changes that may drop messages or stop programs."`
}

// Help is shown by --help in addition to the flags.
func (*provision) Help() string {
	return `Shows the differences from the streams and durable consumers that the programs need, then applies them. Running it again changes nothing. A limit that is left out stays as it is, and so do settings that errand does not manage.

Examples:

    errand provision --dry-run
    errand provision
    errand provision --missing                # what exists stays as it is
    errand provision --replicas 3 --max-age 2160h --yes
    errand provision --max-bytes 20G
    errand provision --max-bytes 2G,MANDATE_EVENTS=30G,MAIL_DELIVERIES=none
    errand provision --reader service         # and then, as a user of that account: errand mirror service
    errand provision --max-age 24h --force    # shorter than before: may drop events

Without --force, a change that may drop messages, or that leaves a stream no room for what it has, is refused, and then nothing is changed at all.`
}

// Run shows the changes and applies them.
func (p *provision) Run(ctx context.Context) error { return p.run(ctx, standard()) }

func (p *provision) run(ctx context.Context, c console) error {
	limits, err := p.limits()
	if err != nil {
		return err
	}
	b, err := p.NATS.open(ctx, "provision", c)
	if err != nil {
		return err
	}
	defer b.nc.Close()
	limits.MaxPayload = b.nc.MaxPayload()
	plan, err := bus.Plan(ctx, b.js, limits)
	if err != nil {
		return b.unanswered(err)
	}
	feeds, err := bus.PlanReaders(ctx, b.js, p.Reader)
	if err != nil {
		return b.unanswered(err)
	}
	plan = append(plan, feeds...)
	if p.Missing {
		plan = onlyMissing(c, plan)
	}
	for _, name := range bus.WithoutHistory(plan) {
		fmt.Fprintln(c.out, c.paint(yellow, name+" is made again, beside the requests that there are: what was run before is not known to it, and is run again if it is published again or waits. Before the programs start again: docs/on-call/disaster.md"))
	}
	return carryOut(ctx, c, plan, consent{dryRun: p.DryRun, yes: p.Yes, force: p.Force})
}

// onlyMissing leaves out what exists, and says what of that is not as it should be.
func onlyMissing(c console, plan []bus.Change) []bus.Change {
	var differ []string
	plan = slices.DeleteFunc(plan, func(change bus.Change) bool {
		if !change.Create {
			differ = append(differ, change.Kind+" "+change.Name)
		}
		return !change.Create
	})
	if len(differ) > 0 {
		fmt.Fprintln(c.out, "left as it is, and not as it should be: "+strings.Join(differ, ", ")+"; --dry-run in place of --missing shows how it differs")
	}
	return plan
}

// consent is what a person said about changes beforehand.
type consent struct{ dryRun, yes, force bool }

// carryOut shows a plan and applies it, unless it is not wanted.
func carryOut(ctx context.Context, c console, plan []bus.Change, given consent) error {
	if len(plan) == 0 {
		fmt.Fprintln(c.out, "nothing to change")
		return nil
	}
	destructive := showPlan(c, plan)
	switch {
	case given.dryRun && destructive && !given.force:
		fmt.Fprintln(c.out, "\nnothing was changed (--dry-run); it would need --force")
		return nil
	case given.dryRun:
		fmt.Fprintln(c.out, "\nnothing was changed (--dry-run)")
		return nil
	case c.interactive && !given.yes && (!destructive || given.force):
		if !confirmed(c) {
			fmt.Fprintln(c.out, "nothing was changed")
			return nil
		}
	}
	fmt.Fprintln(c.out)
	return bus.Apply(ctx, plan, given.force, func(change bus.Change) {
		done := "updated"
		if change.Create {
			done = "created"
		}
		fmt.Fprintf(c.out, "%s %s %s\n", done, change.Kind, change.Name)
	})
}

// limits returns the given limits; an *programs.Invalid names one that cannot work.
func (p *provision) limits() (l bus.Limits, err error) {
	if l.Replicas, err = replicas(p.Replicas, "--replicas (PROVISION_REPLICAS)"); err != nil {
		return l, err
	}
	if p.MaxAge != nil {
		if l.MaxAge = *p.MaxAge; l.MaxAge < time.Minute {
			return l, &programs.Invalid{Variable: "--max-age (PROVISION_MAX_AGE)", Problem: "must be a minute or more: a request that is repeated after that time is run again"}
		}
	}
	if p.AckWait != nil {
		if l.AckWait = *p.AckWait; l.AckWait < time.Second {
			return l, &programs.Invalid{Variable: "--ack-wait (PROVISION_ACK_WAIT)", Problem: "must be a second or more: the programs send progress after a third of it"}
		}
	}
	if p.MaxBytes != nil {
		l.MaxBytes, l.MaxBytesOf = p.MaxBytes.each, p.MaxBytes.of
	}
	for _, reader := range p.Reader {
		if !bus.ValidReader(reader) {
			return l, &programs.Invalid{Variable: "--reader (PROVISION_READER)", Problem: fmt.Sprintf("is %q, must be letters, digits, - and _, at most 32", reader)}
		}
	}
	return l, nil
}

// replicas is a number of copies that NATS can keep; 0 when none was chosen.
func replicas(chosen *int, variable string) (int, error) {
	switch {
	case chosen == nil:
		return 0, nil
	case *chosen != 1 && *chosen != 3 && *chosen != 5:
		return 0, &programs.Invalid{Variable: variable, Problem: fmt.Sprintf("is %d, must be 1, 3 or 5", *chosen)}
	}
	return *chosen, nil
}

// sizes are the maximum sizes of streams.
type sizes struct {
	each int64 // of those not in of; 0: not chosen
	of   bus.MaxBytes
}

// UnmarshalText reads sizes with commas between them, for one stream STREAM=SIZE.
func (s *sizes) UnmarshalText(text []byte) error {
	*s = sizes{of: bus.MaxBytes{}}
	for part := range strings.SplitSeq(string(text), ",") {
		stream, number, named := strings.Cut(part, "=")
		if !named {
			stream, number = "", part
		}
		var n size
		if err := n.UnmarshalText([]byte(number)); err != nil {
			return err
		}
		_, twice := s.of[stream]
		switch {
		case twice || stream == "" && s.each != 0:
			return fmt.Errorf("has two sizes for the same in %q", text)
		case stream == "":
			s.each = int64(n)
		case !slices.ContainsFunc(bus.Streams(bus.Limits{}), func(c jetstream.StreamConfig) bool { return c.Name == stream }):
			return fmt.Errorf("has a size for %q, which is no stream of errand", stream)
		default:
			s.of[stream] = int64(n)
		}
	}
	return nil
}

// size is a number of bytes, or bus.Unlimited.
type size int64

// leastSize is the minimum size of a stream: one message of the maximum size of a server.
const leastSize = 1 << 20

// UnmarshalText reads 1073741824, 1048576K, 1024M, 1G or none.
func (s *size) UnmarshalText(text []byte) error {
	number, shift := strings.ToUpper(string(text)), 0
	if number == "NONE" {
		*s = bus.Unlimited
		return nil
	}
	if unit := strings.IndexAny(number, "KMGT"); unit > 0 && unit == len(number)-1 {
		shift = 10 * (1 + strings.IndexByte("KMGT", number[unit]))
		number = number[:unit]
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n > math.MaxInt64>>shift || n<<shift < leastSize {
		return fmt.Errorf("must be 1M or more, such as 512M or 10G, or none, but got %q", text)
	}
	*s = size(n << shift)
	return nil
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
	answer, _ := bufio.NewReader(c.in).ReadString('\n') // no answer means no
	answer = strings.ToLower(strings.TrimSpace(answer))
	return answer == "y" || answer == "yes"
}
