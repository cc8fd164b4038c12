package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"errand/internal/programs"
	"errand/internal/sandbox"
)

// corrected is an operation, and how requests of it are made and corrected.
type corrected struct {
	operation, id string
	stream        string
	good          string // the state that a request ends in
	request       func(contents string) map[string]any
	refused       sandbox.Fault
	served        func(o sandbox.Oracle) int
}

func correctedOperations() []corrected {
	return []corrected{
		{"mandate.enroll", "r1", "MANDATE_REQUESTS", "succeeded", func(contents string) map[string]any {
			return enrollment("r1", "payer_name", contents)
		}, enrollRefused,
			func(o sandbox.Oracle) int { return o.Enroll.Accepted }},
		{"mail.send", "m1", "MAIL_REQUESTS", "accepted", func(contents string) map[string]any { return message("m1", 1, "content", contents) },
			sendRefused,
			func(o sandbox.Oracle) int { return int(o.Mail.Recipients) }},
	}
}

// consumer is the program of an operation, with batches of two.
func (b *bubble) consumer(operation string) programs.Program {
	if operation == "mandate.enroll" {
		return b.mandates()
	}
	p := b.mails()
	p.BatchSize = 2
	return p
}

// states are the states of a request's history, in order.
func (b *bubble) states(operation, id string) (states []string) {
	b.t.Helper()
	for _, e := range b.events(operation + ".*." + id) {
		states = append(states, strings.Split(e.Subject, ".")[2])
	}
	return states
}

// wantReopened wants one reopened event that says what it was stored over.
func (b *bubble) wantReopened(operation, id, reason string) {
	b.t.Helper()
	e := b.wantOne(operation + ".reopened." + id)
	was, _ := json.Marshal(e.Body["was"])
	if e.Body["by"] != "correction" || !strings.Contains(string(was), `"failed"`) ||
		!strings.Contains(string(was), fmt.Sprintf("%q", reason)) {
		b.t.Errorf("want by correction, was failed and %s: %s", reason, e.Raw)
	}
}

// A request that failed without any effect may be corrected: the same id with other
// contents is run, once, and its outcome is reported under that id.
func TestACorrectedRequestRunsUnderItsID(t *testing.T) {
	for _, op := range correctedOperations() {
		for _, c := range []struct {
			reason string
			faults []sandbox.Fault
			first  func(r map[string]any)
			states []string
		}{
			{"refused", []sandbox.Fault{often(1, op.refused)}, func(map[string]any) {}, []string{"started", "failed", "reopened", "started",
				op.good}},
			{"invalid_request", nil, func(r map[string]any) { r["on_unknown"] = "maybe" }, []string{"failed", "reopened", "started", op.good}},
			{"unavailable", nil, func(r map[string]any) {
				r["give_up_at"] = time.Now().Add(-time.Second).UTC().Format(time.RFC3339)
			}, []string{"failed", "reopened", "started", op.good}},
		} {
			runInBubble(t, op.operation+" "+c.reason, func(t *testing.T, b *bubble) {
				for _, f := range c.faults {
					b.fault(f)
				}
				wrong, right := op.request("wrong"), op.request("right")
				c.first(wrong)
				b.publish(op.operation+".requested", wrong)
				b.run(b.consumer(op.operation), time.Minute, b.ended(op.operation, op.id))
				e := b.wantEnd(op.operation, "failed", op.id)
				fatalIf(t, e.reason() != c.reason, "want %s: %s", c.reason, e.Raw)
				b.publish(op.operation+".requested", wrong) // a repeat, which changes nothing
				b.run(b.consumer(op.operation), time.Minute, nil)
				for range 2 { // and of the correction too
					b.publish(op.operation+".requested", right)
					b.run(b.consumer(op.operation), time.Minute, nil)
				}
				got := b.states(op.operation, op.id)
				fatalIf(t, !slices.Equal(got, c.states), "the history is %v, want %v\n%s", got, c.states, b.logs)
				b.wantReopened(op.operation, op.id, c.reason)
				equal(t, "times carried out", op.served(b.oracle()), 1)
				b.publish(op.operation+".requested", wrong) // other contents, over what is done now
				b.run(b.consumer(op.operation), time.Minute, nil)
				if got := len(b.states(op.operation, op.id)); got != len(c.states) {
					t.Errorf("the first contents changed the history again: %v", b.states(op.operation, op.id))
				}
				b.wantConflict(op, 1)
				b.queueEmpty(op.stream)
			})
		}
	}
}

// wantConflict wants so many requests reported as conflicts with the operation's id.
func (b *bubble) wantConflict(op corrected, n int) {
	b.t.Helper()
	conflicts := b.events(op.operation + ".failed.*")
	conflicts = slices.DeleteFunc(conflicts, func(e event) bool { return strings.HasSuffix(e.Subject, "."+op.id) })
	fatalIf(b.t, len(conflicts) != n, "%d conflicts, want %d: %v\n%s", len(conflicts), n, conflicts, b.logs)
	for _, e := range conflicts {
		// One that is not valid either has its own faults reported beside that.
		errorIf(b.t, e.reason() != "conflict" && e.reason() != "invalid_request" || e.Body["conflicts_with"] != op.id ||
			!strings.Contains(e.Subject, ".failed."+op.stream+"-"),
			"want a conflict with %s under %s-…: %s %s", op.id, op.stream, e.Subject, e.Raw)
	}
}

// Whatever may have had an effect, or may have one yet, is not corrected.
func TestOnlyAFailureWithoutEffectIsCorrected(t *testing.T) {
	far := func(r map[string]any) map[string]any {
		r["give_up_at"] = epoch.Add(48 * time.Hour).Format(time.RFC3339)
		return r
	}
	for _, op := range correctedOperations() {
		name := op.refused.Operation
		for _, c := range []struct {
			state  string
			faults []sandbox.Fault
			forged string // a final event of an older program
			first  func(r map[string]any) map[string]any
		}{
			{state: op.good},
			{state: "deferred", faults: []sandbox.Fault{{Operation: name, Kind: sandbox.Status, Status: 503}}, first: far},
			{state: "uncertain", faults: []sandbox.Fault{{Operation: name, Kind: sandbox.AcceptCut, Times: 1}}},
			{state: "failed", forged: `{"reason":"refused","message":"taken","http_status":422,"after_unknown":true}`},
		} {
			runInBubble(t, op.operation+" "+c.state, func(t *testing.T, b *bubble) {
				for _, f := range c.faults {
					b.fault(f)
				}
				first := op.request("first")
				first["on_unknown"] = "report"
				if c.first != nil {
					first = c.first(first)
				}
				if c.forged != "" {
					body := map[string]any{"request_id": op.id, "at": "2000-01-01T00:00:00.000Z", "attempt": 2, "fingerprint": strings.Repeat("0", 64)}
					must(t, json.Unmarshal([]byte(c.forged), &body))
					b.publish(op.operation+".failed."+op.id, body)
				} else {
					b.publish(op.operation+".requested", first)
					b.run(b.consumer(op.operation), time.Minute, b.published(op.operation+"."+c.state+"."+op.id, 1))
					b.box.ClearFaults("*")
				}
				before := op.served(b.oracle())
				history := b.states(op.operation, op.id)
				last := history[len(history)-1]
				fatalIf(t, last != c.state, "the history is %v, want %s last", history, c.state)
				b.publish(op.operation+".requested", op.request("other"))
				b.run(b.consumer(op.operation), 5*time.Second, nil)
				b.wantConflict(op, 1)
				equal(t, "reopened events", b.count(op.operation+".reopened.*"), 0)
				if c.state != "deferred" {
					now := b.states(op.operation, op.id)
					errorIf(t, !slices.Equal(now, history), "the history was %v and is %v", history, now)
					equal(t, "times carried out", op.served(b.oracle()), before)
				}
			})
		}
	}
}

// A correction that fails too leaves another dead letter, with its contents, and may be corrected again.
func TestEachFailureLeavesItsOwnDeadLetter(t *testing.T) {
	for _, op := range correctedOperations() {
		runInBubble(t, op.operation, func(t *testing.T, b *bubble) {
			b.fault(often(2, op.refused))
			contents := []string{"first", "second", "third"}
			for _, c := range contents {
				b.publish(op.operation+".requested", op.request(c))
				b.run(b.consumer(op.operation), time.Minute, nil)
			}
			want := []string{"started", "failed", "reopened", "started", "failed", "reopened", "started", op.good}
			got := b.states(op.operation, op.id)
			errorIf(t, !slices.Equal(got, want), "the history is %v, want %v", got, want)
			letters := b.events("dead." + op.operation + ".requested")
			fatalIf(t, len(letters) != 2, "%d dead letters, want 2: %v", len(letters), letters)
			for i, d := range letters {
				if !strings.Contains(d.Raw, contents[i]) || d.Header.Get("Errand-Request-Id") != op.id || d.Header.Get("Errand-Reason") != "refused" ||
					d.Header.Get("Errand-Sequence") != fmt.Sprint(i+1) {
					t.Errorf("want the one of the %s: %v %s", contents[i], d.Header, d.Raw)
				}
			}
		})
	}
}

// A message all of whose batches were refused is corrected as a whole, also into more
// batches or fewer: each recipient of the correction is served once, and no other.
func TestAMessageOfRefusedBatchesIsCorrected(t *testing.T) {
	for _, n := range []int{1, 3, 5, 8} {
		runInBubble(t, fmt.Sprint("from 5 to ", n), func(t *testing.T, b *bubble) {
			b.fault(often(3, sendRefused))
			b.publish("mail.send.requested", message("m1", 5))
			b.run(b.consumer("mail.send"), time.Minute, b.ended("mail.send", "m1"))
			b.wantEnd("mail.send", "failed", "m1")

			corrected := message("m1", n, "subject", "corrected")
			b.publish("mail.send.requested", corrected)
			b.publish("mail.send.requested", corrected)
			accepted := b.published("mail.send.accepted.m1", 1)
			b.run(b.consumer("mail.send"), 5*time.Minute, func() bool { return accepted() && b.queued() == 0 })
			b.wantReopened("mail.send", "m1", "refused")
			e := b.wantOne("mail.send.accepted.m1")
			if batches := (n + 1) / 2; number(e.Body["accepted"]) != n || number(e.Body["recipients"]) != n || number(e.Body["batches"]) != batches {
				t.Errorf("want %d accepted in %d batches: %s", n, batches, e.Raw)
			}
			for batch := 1; n > 2 && batch <= (n+1)/2; batch++ {
				b.wantOne(fmt.Sprint("mail.batch.accepted.m1.", batch))
			}
			o := b.oracle()
			errorIf(t, int(o.Mail.Recipients) != n || o.Mail.TwiceCount != 0,
				"%d served, %d of them twice, want %d once", o.Mail.Recipients, o.Mail.TwiceCount, n)
			for _, r := range o.Mail.ByRecipient {
				errorIf(t, r.Subject != "corrected", "%s was served with the subject %q", r.Recipient, r.Subject)
			}
			letters := b.events("dead.mail.send.requested")
			errorIf(t, len(letters) != 1, "%d dead letters, want the first one's", len(letters))
			b.queueEmpty("MAIL_REQUESTS")
		})
	}
}
