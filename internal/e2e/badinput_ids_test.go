package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"errand/internal/sandbox/devkit/devtest"
	"errand/pkg/messages"
)

// Ids that only look like our own are like any other.
func TestIDsNearOurOwnAreTaken(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		ids := []string{"MANDATE_REQUESTS", "MANDATE_REQUESTS-", "MANDATE_REQUESTS-1a", "MANDATE_REQUESTS-1-2", "mandate_requests-1",
			"ORDERS-12", "unmatched-1", "Unmatched"}
		for _, id := range ids {
			b.publish("mandate.enroll.requested", enrollment(id))
		}
		b.run(b.mandates(), time.Minute, b.published("mandate.enroll.succeeded.*", len(ids)))
		for _, id := range ids {
			b.wantEnd("mandate.enroll", "succeeded", id)
		}
	})
}

// A message id that looks like ours, or is invalid, is ignored: the request is named by its place in its stream.
func TestAMessageIDOfOurOwnIsNotTakenForTheRequests(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		ids := []string{"unmatched", "MANDATE_REQUESTS-77", "MAIL_EVENTS-3", "a.b"}
		for i, id := range ids {
			body := enrollment(fmt.Sprint("x", i))
			delete(body, "request_id")
			data := encode(t, body)
			m := &nats.Msg{Subject: "mandate.enroll.requested", Data: data, Header: nats.Header{nats.MsgIdHdr: {id}}}
			b.publishMsg(m)
		}
		b.run(b.mandates(), time.Minute, b.published("mandate.enroll.succeeded.*", len(ids)))
		for i := range ids {
			b.wantEnd("mandate.enroll", "succeeded", fmt.Sprint("MANDATE_REQUESTS-", i+1))
		}
	})
}

// A queue that was deleted and provisioned again counts from 1, while the events of the
// one before are still there: an unreadable message is named by its number, under which
// there is a history already. It gets an event and a dead letter all the same.
func TestUnreadableMessagesOfAQueueMadeAgainAreReported(t *testing.T) {
	for _, q := range operations {
		runInBubble(t, q.Requested(), func(t *testing.T, b *bubble) {
			failed := q.Subject("failed", "*")
			bodies := []string{"\xff\xfe first", "{ second", "", "[3]"}
			for n, body := range bodies {
				if n > 0 {
					must(t, b.js.DeleteStream(t.Context(), q.queue.Stream))
					nc, err := b.nats.Connect()
					must(t, err)
					defer nc.Close()
					must(t, devtest.Provision(t.Context(), nc))
				}
				sequence := b.raw(q.Requested(), nil, body)
				fatalIf(t, sequence != 1, "the queue counts from %d", sequence)
				b.run(b.program(q, 8), 2*time.Minute, func() bool { return b.stored(q.queue.Stream) == 0 && b.published(failed, n+1)() })
				b.queueEmpty(q.queue.Stream)
			}
			b.wantReported(q, bodies)
		})
	}
}

// wantReported wants an event and a dead letter of each of these unreadable messages, under the same id.
func (b *bubble) wantReported(q *operation, bodies []string) {
	events := map[string]event{}
	for _, e := range b.events(q.Subject("*", "*")) {
		errorIf(b.t, string(e.state()) != "failed" || e.reason() != "invalid_request" || !strings.HasPrefix(e.id(), q.queue.Stream+"-1") ||
			events[e.id()].Subject != "", "%s: %s", e.Subject, e.Raw)
		events[e.id()] = e
	}
	dead := map[string]int{}
	for _, d := range b.events("dead." + q.Requested()) {
		dead[d.Raw]++
		id := d.Header.Get("Errand-Request-Id")
		errorIf(b.t, events[id].Subject == "" || d.Header.Get("Errand-Reason") != "invalid_request",
			"dead letter of %q (%q), of which there is no event: %v", id, d.Raw, d.Header)
	}
	errorIf(b.t, len(events) != len(bodies), "%d events of %d messages", len(events), len(bodies))
	for _, body := range bodies {
		errorIf(b.t, dead[body] != 1, "%d dead letters of %q, want one", dead[body], body)
	}
}

// Whatever there is under an unreadable message's number, by an older release or by
// anybody's delivery: its own event and dead letter are not left out for it.
func TestUnreadableMessagesWhoseNumberIsTakenAreReported(t *testing.T) {
	for _, q := range operations {
		for _, state := range []messages.State{q.succeeded, messages.Failed} {
			runInBubble(t, fmt.Sprint(q.Requested(), " ", state), func(t *testing.T, b *bubble) {
				taken := q.Subject(state, q.queue.Stream+"-1")
				b.publish(taken, map[string]any{"request_id": q.queue.Stream + "-1", "at": "2000-01-01T00:00:00.000Z", "attempt": 1,
					"reason": "refused", "message": "another one", "fingerprint": "f00d"})
				b.raw(q.Requested(), nil, "\xff unreadable")
				b.run(b.program(q, 8), 2*time.Minute, func() bool { return b.stored(q.queue.Stream) == 0 })
				b.queueEmpty(q.queue.Stream)
				reported := 0
				for _, e := range b.events(q.Subject("failed", "*")) {
					if e.reason() == "invalid_request" && strings.HasPrefix(e.id(), q.queue.Stream+"-1-") {
						reported++
					}
				}
				if dead := b.events("dead." + q.Requested()); reported != 1 || len(dead) != 1 || dead[0].Raw != "\xff unreadable" ||
					dead[0].Header.Get("Errand-Reason") != "invalid_request" {
					t.Errorf("%d events and %d dead letters of an unreadable message: %v", reported, len(dead), dead)
				}
				equal(t, "events of the history before", b.count(q.Subject("*", q.queue.Stream+"-1")), 1)
			})
		}
	}
}
