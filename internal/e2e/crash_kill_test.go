package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"errand/internal/bus"
	"errand/pkg/messages"
)

// A campaign of twenty batches loses its worker three times: with nothing taken yet,
// a third through, half through. What was on its way at a kill is reported, what was
// taken stays taken, and the rest is sent.
func TestKillInTheMiddleOfTwentyBatches(t *testing.T) {
	const recipients, batches = 20_000, 20
	in := install(t, "UPSTREAM_TIMEOUT=1s", "MAIL_BATCH_PARALLEL=3")
	in.latency(200 * time.Millisecond)
	in.publish("mail.send.requested", message("m1", recipients, "on_unknown", "report"))

	onTheirWay := map[string]bool{}
	for _, taken := range []int{0, 6, 11} {
		p := in.start("mail-consumer")
		in.until(fmt.Sprintf("%d batches taken and others on their way", taken), time.Minute, func() bool {
			return in.totals().Mail.Accepted >= taken && in.inFlight.Load() > 0
		})
		p.kill()
		in.until("NATS and the sandbox to be done with the dead one", time.Minute, func() bool {
			return !slices.Contains(in.clients(), "mail-consumer") && in.inFlight.Load() == 0
		})
		for batch, state := range in.batches("m1") {
			if state == messages.Started {
				onTheirWay[batch] = true
			}
		}
	}
	p := in.start("mail-consumer")
	in.waitOutcomes("mail.send.*.m1", 1, time.Minute)
	in.untilSettled(bus.SendQueue)
	p.stop(time.Minute)

	e := in.wantOne("mail.send.uncertain.m1")
	in.wantFinal("mail.send.*.m1")
	in.wantOne("dead.mail.send.requested")
	outcome := decode[messages.SendOutcome](t, e)
	unsettled := 0
	for _, u := range outcome.Unsettled {
		unsettled += u.Count
		if u.State != messages.Uncertain || u.Reason != messages.ReasonInterrupted || !onTheirWay[fmt.Sprint("m1.", u.Batch)] {
			t.Errorf("unsettled: %+v; on their way at a kill were %v", u, onTheirWay)
		}
	}
	if outcome.Recipients != recipients || outcome.Accepted+unsettled != recipients || outcome.Batches != batches || unsettled == 0 {
		t.Errorf("%d accepted and %d unsettled of %d recipients in %d batches", outcome.Accepted, unsettled, outcome.Recipients, outcome.Batches)
	}
	in.wantBatchesMatchOracle("m1", recipients, batches)
	o := in.totals()
	if o.Mail.TwiceCount != 0 || o.Calls["send"] > batches || o.Mail.Largest > 1000 {
		t.Errorf("%d served twice by %d calls of at most %d", o.Mail.TwiceCount, o.Calls["send"], o.Mail.Largest)
	}
	t.Logf("%d accepted, %d uncertain, %d calls, %d batches on their way at the kills", outcome.Accepted, unsettled, o.Calls["send"], len(onTheirWay))
}
