//go:build !nodemo

package main

import (
	"fmt"

	"errand/internal/style"
	"errand/pkg/messages"
)

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

func (v *demoView) show(e event) {
	s := messages.ParseSubject(e.Subject)
	if s.Operation != messages.Delivery || s.ID != v.many.id {
		fmt.Fprintln(v.out, v.line(e))
		return
	}
	v.shown[s.State]++
	if n := v.shown[messages.Delivered] + v.shown[messages.Bounced]; n%every == 0 && n <= manyPeople {
		fmt.Fprintf(v.out, "%s  %s  %s  %s of %s, bounced %d\n", e.Time.Local().Format("15:04:05.000"),
			pad(string(messages.Delivery)+".*", v.kind), pad(v.many.id, v.id), style.Count(n), style.Count(manyPeople), v.shown[messages.Bounced])
	}
}

func (v *demoView) printSummary(h *installation, problems []string) {
	head := []string{"requested", "calls", "accepted", "delivered", "bounced", "refused"}
	fmt.Fprintf(v.out, "\n%s", pad("", 19))
	for _, name := range head {
		fmt.Fprint(v.out, v.paint(dim, fmt.Sprintf("%10s", name)))
	}
	fmt.Fprintln(v.out)
	for _, r := range v.scenario.requests {
		fmt.Fprint(v.out, pad(r.title, 19))
		g := r.got
		for i, n := range []int{r.want.requested, g.calls, g.accepted, g.delivered, g.bounced, g.refused} {
			cell := style.Count(n)
			if r.op == messages.Enroll && (head[i] == "delivered" || head[i] == "bounced") {
				cell = "-"
			}
			fmt.Fprintf(v.out, "%10s", cell)
		}
		fmt.Fprintln(v.out)
		if g.application != "" {
			fmt.Fprintf(v.out, "    %s by its payer\n", printable(string(g.application)))
		}
		if g.leftOut > 0 {
			fmt.Fprintf(v.out, "    left out: %d invalid or twice\n", g.leftOut)
		}
	}
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
