//go:build !nodemo

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"errand/internal/bus"
	"errand/internal/sandbox"
	"errand/internal/style"
	"errand/pkg/messages"
)

// withDemo has the commands that the build tag nodemo removes.
type withDemo struct {
	Demo demo `cmd:"" help:"Run NATS, the sandbox, the programs and four requests on this machine."`
}

// demo shows a whole installation at work.
//
//	installation ─► NATS, streams, sandbox, the programs
//	scenario     ─► the requests, and their expected outcomes
//	demoView     ─► what is shown: lines, a table
type demo struct {
	Stay    bool   `help:"Keep running until Ctrl-C, and say what to try next."`
	Store   string `placeholder:"DIR" help:"Keep the server's data here; default: a temporary directory."`
	Verbose bool   `short:"v" help:"Show the programs' warnings."`
}

// demoTimeout is how long the scenario may take. It takes about five seconds, and longer on a busy machine.
const demoTimeout = 2 * time.Minute

func (*demo) Help() string {
	return `Starts a NATS server, the sandbox and the programs in this process, on free ports of this machine, and shows
what happens to two enrollments, one of which its payer approves, and two messages, one of them to 2,500 people. The
exit status is 0 only if every outcome is the expected one. Mail has the lanes default and bulk, and SUPPRESS_BOUNCED=30d.

Examples:

    errand demo
    errand demo --stay                # then use errand publish, errand watch or the nats tool with it
    errand demo --stay --store ~/errand-demo`
}

func (d *demo) Run(ctx context.Context, c console) (err error) {
	log := zerolog.Nop()
	if d.Verbose {
		log = c.warnings()
	}
	h, err := d.open(ctx, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.close()) }()
	fmt.Fprintf(c.out, "NATS      %s\nsandbox   %s/   %s/mail\n", h.nats, h.sandbox, h.sandbox)
	fmt.Fprint(c.out, "programs  mandate-consumer, transaction-poller, callback-receiver, mail-consumer, log-poller\n\n")

	s := newScenario(time.Now())
	view := newDemoView(c, s)
	err = d.play(h, s, view)
	switch {
	case ctx.Err() != nil:
		return errors.New("interrupted before the end")
	case err != nil, h.ctx.Err() != nil: // close says what failed
		return err
	}
	problems := s.check(h.box.Oracle(sandbox.Query{}))
	view.printSummary(h, problems)
	if len(problems) > 0 {
		return fmt.Errorf("%d results were not as expected", len(problems))
	}
	if d.Stay {
		return d.stay(ctx, h, view)
	}
	fmt.Fprintln(c.out, "\nEverything is as expected. The pages and the server end with the demo;\nerrand demo --stay keeps them.")
	return nil
}

// play publishes the requests and shows their events, until every outcome is known or
// demoTimeout has passed.
func (d *demo) play(h *installation, s *scenario, v *demoView) error {
	ctx, enough := context.WithTimeout(h.ctx, demoTimeout)
	defer enough()
	f, err := follow(ctx, h.broker, everything, time.Time{})
	if err != nil {
		return err
	}
	complete := make(chan error, 1)
	go func() {
		defer enough()
		complete <- s.run(ctx, h)
	}()
	err = f.run(ctx, v.show)
	enough()
	return errors.Join(err, ended(ctx, <-complete), ended(h.ctx, f.news(h.ctx, v.show)))
}

// stay shows events until Ctrl-C.
func (d *demo) stay(ctx context.Context, h *installation, v *demoView) error {
	v.printHints(h)
	f, err := follow(h.ctx, h.broker, everything, time.Time{})
	if err != nil {
		return ended(ctx, err)
	}
	return f.run(h.ctx, v.show)
}

// demoView shows the scenario: a line for each event, and now and then one for the deliveries of the big message.
type demoView struct {
	*lines
	scenario *scenario
	many     *demoRequest
	shown    map[messages.State]int // deliveries of the big message
}

func newDemoView(c console, s *scenario) *demoView {
	v := &demoView{lines: newLines(c), scenario: s, many: s.requests[3], shown: map[messages.State]int{}}
	v.kind = len("mandate.application.approved") // so that the columns do not move
	return v
}

// every is the number of deliveries of the big message per line.
const every = 500

func (v *demoView) show(e bus.Message) {
	s := messages.ParseSubject(e.Subject)
	if s.Operation != messages.Delivery || s.ID != v.many.id {
		fmt.Fprintln(v.out, v.line(e, time.Now()))
		return
	}
	v.shown[s.State]++
	if n := v.shown[messages.Delivered] + v.shown[messages.Bounced]; n%every == 0 && n <= manyPeople {
		fmt.Fprintf(v.out, "%s  %s  %s  %s of %s, bounced %d\n", e.Time.Local().Format("15:04:05.000"),
			pad(string(messages.Delivery)+".*", v.kind), pad(v.many.id, v.id), style.Count(n), style.Count(manyPeople), v.shown[messages.Bounced])
	}
}

func (v *demoView) printSummary(h *installation, problems []string) {
	var rows [][]cell
	var notes strings.Builder
	for _, r := range v.scenario.requests {
		row, g := []cell{cellOf(r.title)}, r.got
		for _, n := range []int{r.want.requested, g.calls, g.accepted, g.delivered, g.bounced, g.refused} {
			row = append(row, cellOf(style.Count(n)))
		}
		if g.application != "" {
			fmt.Fprintf(&notes, "%s: %s by its payer\n", r.title, printable(string(g.application)))
		}
		if g.leftOut > 0 {
			fmt.Fprintf(&notes, "%s: left out %d, invalid or twice\n", r.title, g.leftOut)
		}
		rows = append(rows, row)
	}
	fmt.Fprintln(v.out)
	v.table([]string{"REQUEST", "REQUESTED", "CALLS", "ACCEPTED", "DELIVERED", "BOUNCED", "REFUSED"}, rows)
	fmt.Fprint(v.out, notes.String())
	for _, problem := range problems {
		fmt.Fprintln(v.out, v.paint(red, "not as expected: "+printable(problem)))
	}
	fmt.Fprintf(v.out, "\nenrollment  %s\nmail        %s/mail\nNATS        %s\n", printable(v.scenario.requests[0].url), h.sandbox,
		h.nats)
}

func (v *demoView) printHints(h *installation) {
	to := " --nats-url " + h.nats
	fmt.Fprintf(v.out, `
Everything keeps running until Ctrl-C. Try in another terminal (errand is go run ./cmd/errand, if it is not installed):

    errand watch%[1]s --since 10m 'mandate.*.*.%[3]s' 'mail.*.*.%[2]s' 'mail.batch.*.%[2]s.*'
    errand publish%[1]s mail.send.requested --wait -f from=me@example.com -f to=you@example.com -f subject=Hi -f content=Hello
    errand publish%[1]s mandate.transactions.requested --wait
    curl -X POST %[4]s/_sandbox/cycle      # deducts from the approved mandate

or make the email service cut the connection after accepting a message, then publish again: the fate of that call is unknown.

    curl -d '{"operation":"send","kind":"accept_cut","times":1}' %[4]s/_sandbox/faults

`, to, v.many.id, v.scenario.requests[0].id, h.sandbox)
}
