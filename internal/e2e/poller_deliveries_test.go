package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
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
		b.insertRow(map[string]any{"to": "a@example.test"}) // somebody else's
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
		b.publish("mail.send.requested", message("m1", 5))
		b.publish("mail.send.requested", message("m2", 5))
		b.run(p, time.Minute, b.published("mail.send.uncertain.*", 2))
		b.pollOn(40 * time.Minute)
		b.pollOn(5 * time.Minute)
		body := decode[messages.SendResolved](t, b.wantOne("mail.send.resolved.*"))
		body.At, body.Evidence.CompleteThrough = messages.Time{}, messages.Time{}
		want := messages.SendResolved{Common: messages.Common{RequestID: "m1"}, Outcome: messages.Accepted, By: messages.BySendingLog,
			Fingerprint: body.Fingerprint,
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

// By a clock that is three seconds behind, the rows of a message say that it was taken
// before it was sent: they are not matched, and nothing is resolved by them.
func TestRowsOfAnUpstreamWhoseClockIsBehindProveNothing(t *testing.T) {
	full(t)
	inBubble(t, func(t *testing.T, b *bubble) {
		b.watchLog()
		b.fault(sandbox.Fault{Operation: "send", Kind: sandbox.Cut, Times: 1})
		began := time.Now()
		b.send(message("behind", 2, "from", "sender@example.test"), messages.Uncertain)
		at := began.Add(-3 * time.Second)
		for n := range 2 {
			b.insertRow(map[string]any{"to": fmt.Sprintf("behind-%d@example.test", n), "from": "sender@example.test",
				"envelope_id": fmt.Sprintf("%011x%07x", at.UnixMilli(), 1), "created_at": at.Add(time.Second).UTC()})
		}
		b.pollOn(30 * time.Minute)
		b.pollOn(2 * time.Hour) // another one, which only learns of the rows
		none := 0
		for _, e := range b.events("mail.delivery.delivered.unmatched") {
			body := decode[messages.DeliveryBody](t, e)
			var entry struct{ To string }
			err := json.Unmarshal(body.Entry, &entry)
			errorIf(t, err != nil || body.Match.Confidence != messages.MatchNone || body.Match.Candidates != nil, "%s (%v)", e.Raw, err)
			if entry.To != other {
				none++
			}
		}
		errorIf(t, none != 2 || b.count("mail.send.resolved.*") != 0, "%d rows are unmatched, want 2, and nothing resolved", none)
	})
}

// Mail of others to the same person at the same time, by an id that proves nothing,
// may be the row of a call of unknown fate or not: it resolves nothing.
func TestAmbiguousRowsResolveNothing(t *testing.T) {
	full(t)
	inBubble(t, func(t *testing.T, b *bubble) {
		b.watchLog()
		for _, id := range []string{"known", "unknown"} {
			m := message(id, 0)
			m["to"] = []string{"x@example.test"}
			end := messages.Accepted
			if id == "unknown" {
				b.fault(sandbox.Fault{Operation: "send", Kind: sandbox.Cut, Times: 1})
				end = messages.Uncertain
			}
			b.send(m, end)
		}
		b.insertRow(map[string]any{"to": "x@example.test", "envelope_id": "of nobody", "from": "", "created_at": time.Now().UTC()})
		b.pollOn(30 * time.Minute)
		b.pollOn(2 * time.Hour) // another one, which only learns of the row
		var candidates []string
		for _, e := range b.events("mail.delivery.delivered.unmatched") {
			candidates = append(candidates, decode[messages.DeliveryBody](t, e).Match.Candidates...)
		}
		diff := cmp.Diff([]string{"known", "unknown"}, candidates)
		errorIf(t, diff != "" || b.count("mail.send.resolved.*") != 0, "candidates (-want +got):\n%s, and nothing resolved", diff)
	})
}

// Of recipients that were accepted and never got a row, after three days the summary is final as it is. Pollers
// run around those hours only: hours of one cost seconds, since it asks so often.
func TestTheSummaryOfRecipientsWithoutARowEnds(t *testing.T) {
	full(t)
	inBubble(t, func(t *testing.T, b *bubble) {
		b.set(func(s *sandbox.Settings) { s.LogSpread = sandbox.Duration(1000 * time.Hour) })
		b.send(message("slow", 3), messages.Accepted)
		sent := time.Now()
		between := func(from, to time.Duration) {
			time.Sleep(time.Until(sent.Add(from)))
			p := b.poller()
			p.Interval = time.Minute
			b.run(p, to-from, nil)
		}
		between(0, 10*time.Minute)
		want := []string{"3 of 3: 1 delivered, 0 deferred, 0 bounced, 0 unknown, 2 queued, final false"}
		between(71*time.Hour+30*time.Minute, 71*time.Hour+55*time.Minute)
		if diff := cmp.Diff(want, b.summaries("slow")); diff != "" {
			t.Errorf("summaries before the end (-want +got):\n%s", diff)
		}
		want = append(want, "3 of 3: 1 delivered, 0 deferred, 0 bounced, 0 unknown, 2 queued, final true")
		for _, from := range []time.Duration{71*time.Hour + 56*time.Minute, 72*time.Hour + 11*time.Minute} {
			between(from, from+14*time.Minute) // by the one that was there when it was time, and not again by the next
			diff := cmp.Diff(want, b.summaries("slow"))
			errorIf(t, diff != "", "summaries (-want +got):\n%s", diff)
		}
	})
}

// The examples of docs/use/deliveries.md are bodies as they are published: with each of their
// fields, and with no other.
func TestTheExamplesOfDeliveriesAreBodies(t *testing.T) {
	text, err := os.ReadFile("../../docs/use/deliveries.md")
	must(t, err)
	bodies := []any{&messages.DeliveryBody{}, &messages.SummaryBody{}, &messages.SendResolved{},
		&messages.Watermark{}}
	examples := strings.Split(string(text), "```json\n")[1:]
	fatalIf(t, len(examples) != len(bodies), "%d examples, want %d", len(examples), len(bodies))
	for i, body := range bodies {
		example, _, _ := strings.Cut(examples[i], "```")
		if err := messages.DecodeEvent([]byte(example), body); err != nil {
			t.Errorf("%T: %v", body, err)
			continue
		}
		written := encode(t, body)
		var want, got any
		must(t, errors.Join(json.Unmarshal([]byte(example), &want), json.Unmarshal(written, &got)))
		diff := cmp.Diff(want, got)
		errorIf(t, diff != "", "%T, of the example (-) and as it is written (+):\n%s", body, diff)
	}
}
