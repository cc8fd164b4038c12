package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"errand/internal/sandbox"
	"errand/pkg/messages"
)

// summaries are all summaries of a request, at least a minute apart.
func (b *bubble) summaries(id string) (all []string) {
	b.t.Helper()
	var last time.Time
	for _, e := range b.events("mail.delivery.summary." + id) {
		s := decode[messages.SummaryBody](b.t, e)
		errorIf(b.t, s.At.Sub(last) < time.Minute, "%s: two summaries within %v", id, s.At.Sub(last))
		last = s.At.Time
		all = append(all, counts(s))
	}
	return all
}

// A list to people of whom some bounce and some are deferred first, and the same list four minutes later: every
// delivery names its request, batch and recipient, and the summaries show how far each is, the last time when all is
// settled. A new poller, or a second one, publishes nothing again.
func TestDeliveriesBelongToTheirRequestsAndAreSummedUp(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		to := []string{"a@example.test", "bounce@example.test", "B <defer@Example.test>", "c@example.test", "d@example.test"}
		for _, id := range []string{"first", "second"} {
			m := message(id, 0)
			m["to"] = to
			p := b.mails()
			p.BatchSize = 2
			b.publish("mail.send.requested", m)
			b.run(p, time.Minute, b.published("mail.send.accepted."+id, 1))
			b.poll(4*time.Minute, nil)
		}
		b.insertRow(map[string]any{"to": "a@example.test"}) // another program's
		b.poll(10*time.Minute, nil)
		b.poll(3*time.Minute, nil)
		got := map[string]int{}
		for _, e := range b.events("mail.delivery.*.*") {
			if e.state() == messages.Summary {
				continue
			}
			body := decode[messages.DeliveryBody](t, e)
			got[fmt.Sprint(strings.TrimPrefix(e.Subject, "mail.delivery."), " ", body.Match.Confidence, " ", body.Match.Batch, " ",
				e.Header.Get("Errand-Recipient"))]++
			id := strings.Split(e.Subject, ".")[3]
			errorIf(t, id != messages.Unmatched && body.RequestID != id, "%s: request_id %q", e.Subject, body.RequestID)
		}
		want := map[string]int{"delivered.unmatched none 0 ": 1}
		for _, id := range []string{"first", "second"} {
			for what, state := range map[string]messages.State{"1 1.0": "delivered", "1 1.1": "bounced", "2 2.2": "deferred", "2 2.3": "delivered",
				"3 3.4": "delivered"} {
				want[fmt.Sprint(state, ".", id, " exact ", what)] = 1
			}
			want[fmt.Sprint("delivered.", id, " exact 2 2.2")] = 1
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("deliveries (-want +got):\n%s", diff)
		}
		for _, id := range []string{"first", "second"} {
			want := []string{"5 of 5: 3 delivered, 1 deferred, 1 bounced, 0 unknown, 0 queued, final false",
				"5 of 5: 4 delivered, 0 deferred, 1 bounced, 0 unknown, 0 queued, final true"}
			diff := cmp.Diff(want, b.summaries(id))
			errorIf(t, diff != "", "summaries of %s (-want +got):\n%s", id, diff)
		}
	})
}

// Two batches of three are of unknown fate. Where both were sent, their rows resolve the request
// that ended uncertain: once, by however many pollers. Where one was not, nothing does.
func TestTheSendingLogResolvesAnUncertainMessage(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		b.watchLog()
		p := b.mails()
		p.BatchSize, p.BatchParallel = 2, 1
		for match, kind := range map[string]string{"m1-0@": sandbox.AcceptCut, "m1-2@": sandbox.AcceptCut, "m2-0@": sandbox.AcceptCut,
			"m2-2@": sandbox.Cut} {
			b.fault(sandbox.Fault{Operation: "send", Kind: kind, Match: match, Times: 1})
		}
		b.declare("bulk")
		b.traced("mail.send.requested.lane.bulk", message("m1", 5))
		b.publish("mail.send.requested", message("m2", 5))
		b.run(p, time.Minute, b.published("mail.send.uncertain.*", 2))
		b.pollOn(40 * time.Minute)
		b.pollOn(5 * time.Minute)
		resolved := b.wantOne("mail.send.resolved.*")
		errorIf(t, resolved.Header.Get("traceparent") != publisherContext || resolved.Header.Get("tracestate") != "shop=1",
			"resolved has the headers %v", resolved.Header)
		body := decode[messages.SendResolved](t, resolved)
		body.At, body.Evidence.CompleteThrough = messages.Time{}, messages.Time{}
		want := messages.SendResolved{Common: messages.Common{RequestID: "m1", Attempt: 3, Lane: "bulk"}, Outcome: messages.Accepted,
			By: messages.BySendingLog, Fingerprint: body.Fingerprint,
			Evidence: messages.SendEvidence{Seen: 4, Count: 4, Batches: []messages.BatchEvidence{{Batch: 1, Count: 2, Seen: 2},
				{Batch: 2, Count: 2, Seen: 2}}}}
		diff := cmp.Diff(want, body)
		errorIf(t, diff != "" || body.Fingerprint == "", "resolved (-want +got):\n%s", diff)
		last := b.summaries("m1")
		if want := "5 of 5: 5 delivered, 0 deferred, 0 bounced, 0 unknown, 0 queued, final true"; len(last) == 0 || last[len(last)-1] != want {
			t.Errorf("summaries: %q", last)
		}
	})
}
