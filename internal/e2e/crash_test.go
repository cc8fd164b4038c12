//go:build unix

package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"errand/internal/bus"
	"errand/internal/sandbox"
	"errand/pkg/messages"
)

// A campaign of twenty batches loses its worker three times: with nothing taken yet,
// a third through, half through. What was on its way at a kill is reported, what was
// taken stays taken, and the rest is sent.
func TestKillInTheMiddleOfTwentyBatches(t *testing.T) {
	const recipients, batches = 20_000, 20
	in := install(t, "UPSTREAM_TIMEOUT=1s", "MAIL_BATCH_PARALLEL=3")
	in.set(func(s *sandbox.Settings) { s.Latency = sandbox.Duration(200 * time.Millisecond) })
	in.publish("mail.send.requested", message("m1", recipients, "on_unknown", "report"))

	onTheirWay := map[string]bool{}
	for _, taken := range []int{0, 6, 11} {
		p := in.start("mail-consumer")
		in.until(fmt.Sprintf("%d batches taken and others on their way", taken), 30*time.Second, func() bool {
			return in.submissions() >= taken && in.inFlight.Load() > 0
		})
		p.kill()
		in.until("NATS and the sandbox to be done with the dead one", 10*time.Second, func() bool {
			return !slices.Contains(in.clients(), "mail-consumer") && in.inFlight.Load() == 0
		})
		for batch, state := range in.batches("m1") {
			if state == messages.Started {
				onTheirWay[batch] = true
			}
		}
	}
	p := in.start("mail-consumer")
	in.waitTold("mail.send.*.m1", 1, time.Minute)
	in.until("an empty queue", 10*time.Second, func() bool { return in.left(bus.SendQueue) == 0 })
	p.stop(5 * time.Second)

	e := in.wantOne("mail.send.uncertain.m1")
	in.oneEnd("mail.send.*.m1")
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
	in.wantBatchesAsTheOracleKnows("m1", recipients, batches)
	o := in.box.Oracle(sandbox.Query{Summary: true})
	if o.Mail.TwiceCount != 0 || o.Calls["send"] > batches || o.Mail.Largest > 1000 {
		t.Errorf("%d served twice by %d calls of at most %d", o.Mail.TwiceCount, o.Calls["send"], o.Mail.Largest)
	}
	t.Logf("%d accepted, %d uncertain, %d calls, %d batches on their way at the kills", outcome.Accepted, unsettled, o.Calls["send"], len(onTheirWay))
}

func (in *installation) submissions() int {
	return in.box.Oracle(sandbox.Query{Summary: true}).Mail.Accepted
}

// batches gives the last state of each batch of a request, by <request id>.<n>.
func (in *installation) batches(id string) map[string]messages.State {
	in.t.Helper()
	states := map[string]messages.State{}
	for _, e := range in.told("mail.batch.*." + id + ".*") {
		states[e.id()] = e.state()
	}
	return states
}

// wantBatchesAsTheOracleKnows holds the end of each batch against what the sandbox did.
func (in *installation) wantBatchesAsTheOracleKnows(id string, recipients, batches int) {
	in.t.Helper()
	served := in.served(recipients)[id]
	histories := in.histories("mail.batch.*." + id + ".*")
	if len(histories) != batches {
		in.t.Errorf("%d batches have a history, want %d", len(histories), batches)
	}
	for batch, history := range histories {
		e, err := end(history)
		if err == nil {
			err = batchAgrees(in.t, e, served)
		}
		if err != nil {
			in.t.Errorf("%s: %v", batch, err)
		}
	}
}
