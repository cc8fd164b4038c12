package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"errand/internal/sandbox"
	"errand/pkg/messages"
)

// forged are events in a request's history that no worker wrote.
func forged() map[string]string {
	return map[string]string{
		"binary": "\xff\x00" + payerMarker, "empty": "", "text": `"` + payerMarker + `"`, "array": "[1]", "number": "1e999",
		"cut off":           `{"deadline":"2026-`,
		"deadline a number": `{"deadline":17}`, "deadline no time": `{"deadline":"` + payerMarker + `"}`,
		"deadline in 9999":    `{"deadline":"9999-12-31T23:59:59Z"}`,
		"not_before in 9999":  `{"not_before":"9999-12-31T23:59:59Z","deadline":"1900-01-01T00:00:00Z"}`,
		"deadline in a month": `{"deadline":"2000-02-01T00:00:00Z"}`, // a bubble begins on the first day of 2000
		"attempt huge":        `{"attempt":1e999}`, "attempt at the end": `{"attempt":9223372036854775807}`,
		"attempt negative": `{"attempt":-1}`, "attempt a text": `{"attempt":"1"}`,
		"fingerprint a number": `{"fingerprint":1}`, "deep": strings.Repeat("[", 20_000),
	}
}

// A history that cannot be read is reported, again and again but slowly; nothing is called
// for its request, and the ones behind it go on, with one worker too.
func TestForgedHistoryIsReportedAndBlocksNobody(t *testing.T) {
	full(t)
	for _, q := range operations {
		states := map[string][]messages.State{"enroll": {"started", "deferred", "succeeded", "failed", "uncertain"},
			"send":         {"started", "deferred", "accepted", "failed"},
			"transactions": {"listed"}, "account": {"failed"}}[q.call]
		for _, state := range states {
			runInBubble(t, fmt.Sprint(q.Requested(), " ", state), func(t *testing.T, b *bubble) {
				ids := map[string]string{}
				for name, body := range forged() {
					id := fmt.Sprint("forged-", len(ids))
					ids[id] = name
					b.publish(q.Subject(state, id), []byte(body))
					b.publish(q.Requested(), q.request(id))
				}
				b.publish(q.Requested(), q.request("good"))
				logged := b.keepLogs()
				b.run(b.program(q, 2), time.Hour, nil)
				b.wantOne(q.Subject(q.succeeded, "good"))
				for id, name := range ids {
					reported := logged.count("nak with delay", `"`+id+`"`, "not written by errand")
					if reported < 30 || reported > 90 { // an hour with waits up to a minute
						t.Errorf("%s: reported %d times in an hour", name, reported)
					}
					got := b.events(q.Subject("*", id))
					errorIf(t, len(got) != 1, "%s: %d events, want the forged one alone", name, len(got))
				}
				most := int64(1)
				if q.call == "transactions" || q.call == "account" {
					most += int64(len(ids)) // a read is made before the history is looked at, on the first delivery only
				}
				n := b.oracle().Calls[q.call]
				errorIf(t, n > most, "%d calls of %s, want at most %d", n, q.call, most)
				equal(t, "lines of the log quote a forged event", logged.count(payerMarker), 0)
			})
		}
	}
}

// What an event says about one kind of request alone is looked at too: nothing is called for a message whose batches are not known.
func TestForgedDetailsAreReportedAndBlockNobody(t *testing.T) {
	full(t)
	past := `"deadline":"1900-01-01T00:00:00Z"`
	for _, body := range []string{`{}`, `{` + past + `,"batch_size":0}`, `{` + past + `,"batch_size":-1}`, `{` + past + `,"batch_size":1001}`,
		`{` + past + `,"batch_size":9000000000000000000}`, `{` + past + `,"batch_size":"` + payerMarker + `"}`} {
		runInBubble(t, sendOp.Requested()+" "+body, func(t *testing.T, b *bubble) {
			b.publish(sendOp.Subject("started", "forged"), []byte(body))
			b.publish(sendOp.Requested(), sendOp.request("forged"))
			b.publish(sendOp.Requested(), sendOp.request("good"))
			logged := b.keepLogs()
			b.run(b.program(sendOp, 2), time.Hour, nil)
			b.wantOne(sendOp.Subject(sendOp.succeeded, "good"))
			n := b.count(sendOp.Subject("*", "forged"))
			errorIf(t, n != 1 || b.oracle().Calls[sendOp.call] != 1, "%d events of the forged request, want the forged one alone, and no call", n)
			n = logged.count("nak with delay", `"forged"`)
			errorIf(t, n < 30 || n > 90 || logged.count(payerMarker) != 0, "reported %d times in an hour\n%s", n, b.logs)
		})
	}
}

// A started event without a deadline is one whose holder is not there: the payer may be enrolled already, so the list is read first.
func TestStartedWithoutADeadlineIsFoundOut(t *testing.T) {
	for _, body := range []string{`{}`, `{"deadline":null}`, `{"deadline":"1900-01-01T00:00:00Z","attempt":3,"what":{"is":["this"]}}`} {
		runInBubble(t, body, func(t *testing.T, b *bubble) {
			b.list()
			b.publish("mandate.enroll.started.r1", []byte(body))
			b.publish("mandate.enroll.requested", enrollment("r1", "on_unknown", "retry"))
			b.run(b.mandates(), time.Minute, b.published("mandate.enroll.succeeded.r1", 1))
			e := b.wantOne("mandate.enroll.succeeded.r1")
			calls := b.oracle().Calls
			errorIf(t, e.Body["after_unknown"] != true || calls["transactions"] == 0 || b.box.Enrolled("order-r1") != 1,
				"calls %v: %s", calls, e.Raw)
		})
	}
}

// A batch whose history cannot be read is not sent, nothing is sent twice for it, and the request waits without hurry.
func TestForgedBatchIsNotSent(t *testing.T) {
	full(t)
	for _, body := range []string{"\xff" + payerMarker, `{"deadline":"9999-01-01T00:00:00Z"}`, `{"after_unknown":"` + payerMarker + `"}`} {
		runInBubble(t, body, func(t *testing.T, b *bubble) {
			b.publish("mail.batch.started.m1.2", []byte(body))
			b.publish("mail.send.requested", message("m1", 2500))
			b.publish("mail.send.requested", message("good", 1))
			logged := b.keepLogs()
			b.run(b.program(sendOp, 2), time.Hour, nil)
			b.wantOne("mail.send.accepted.good")
			o := b.oracle().Mail
			sent := slices.ContainsFunc(o.ByRecipient, func(r sandbox.Received) bool { return r.Recipient == "m1-1000@example.test" })
			errorIf(t, sent || o.TwiceCount != 0, "the forged batch was sent: %v, twice: %v", sent, o.Twice)
			n := logged.count("nak with delay", `"m1"`)
			errorIf(t, n < 30 || n > 120 || logged.count(payerMarker) != 0, "%d naks in an hour\n%s", n, b.logs)
		})
	}
}

// What an accepted batch says of its number is believed within its bounds only.
func TestForgedCountsStayWithinTheBatch(t *testing.T) {
	for said, want := range map[string]int{"99999": 1001, "-5": 1} {
		inBubble(t, func(t *testing.T, b *bubble) {
			b.publish("mail.batch.accepted.m1.1", []byte(`{"accepted":`+said+`}`))
			b.publish("mail.send.requested", message("m1", 1001))
			b.run(b.mails(), 5*time.Minute, b.published("mail.send.accepted.m1", 1))
			e := b.events("mail.send.*.m1")
			last := e[len(e)-1]
			errorIf(t, number(last.Body["accepted"]) != want, "%s: want %d accepted: %s", said, want, last.Raw)
		})
	}
}
