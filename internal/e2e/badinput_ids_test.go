package e2e

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// streams are those whose names our own ids begin with.
var streams = []string{"MANDATE_REQUESTS", "MANDATE_EVENTS", "MAIL_REQUESTS", "MAIL_EVENTS", "MAIL_DELIVERIES", "DEAD_LETTERS", "RATE_LEASES"}

// An order number with a space at an end is listed without it by some services, where it
// may be taken for another one.
func TestAnOrderNumberHasNoSpaceAtItsEnds(t *testing.T) {
	var kinds []poison
	for _, value := range []string{`" DD001"`, `"DD001 "`, `" "`, `"  DD 001"`, `"DD001\u00a0"`} {
		kinds = append(kinds, with(enrollment("x"), "order_number", value))
	}
	wantRejected(t, enrollOp, 8, kinds)
}

// Ids that the programs give themselves cannot be taken by a request.
func TestIDsOfOurOwnAreNotTaken(t *testing.T) {
	for _, q := range operations {
		t.Run(q.Requested(), func(t *testing.T) {
			var kinds []poison
			ids := []string{"unmatched", "MAIL_EVENTS-0", "MANDATE_EVENTS-18446744073709551616"}
			for _, stream := range streams {
				ids = append(ids, stream+"-12")
			}
			for _, id := range ids {
				body := q.request("")
				body["request_id"] = id
				data, err := json.Marshal(body)
				must(t, err)
				kinds = append(kinds, poison{body: string(data), field: "request_id"})
			}
			wantRejected(t, q, 8, kinds)
		})
	}
}

// Ids that only look like our own are like any other.
func TestIDsNearOurOwnAreTaken(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		ids := []string{"MANDATE_REQUESTS", "MANDATE_REQUESTS-", "MANDATE_REQUESTS-1a", "MANDATE_REQUESTS-1-2", "mandate_requests-1", "ORDERS-12", "unmatched-1", "Unmatched"}
		for _, id := range ids {
			b.publish("mandate.enroll.requested", enrollment(id))
		}
		b.run(b.mandates(), time.Minute, b.published("mandate.enroll.succeeded.*", len(ids)))
		for _, id := range ids {
			b.wantEnd("mandate.enroll", "succeeded", id)
		}
	})
}

// A message id that is one of ours, or no id, is none: the request goes by its place in
// its stream.
func TestAMessageIDOfOurOwnIsNotTakenForTheRequests(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		ids := []string{"unmatched", "MANDATE_REQUESTS-77", "MAIL_EVENTS-3", "a.b"}
		for i, id := range ids {
			body := enrollment(fmt.Sprint("x", i))
			delete(body, "request_id")
			data, err := json.Marshal(body)
			must(t, err)
			m := &nats.Msg{Subject: "mandate.enroll.requested", Data: data, Header: nats.Header{nats.MsgIdHdr: {id}}}
			if _, err := b.js.PublishMsg(t.Context(), m); err != nil {
				t.Fatal(err)
			}
		}
		b.run(b.mandates(), time.Minute, b.published("mandate.enroll.succeeded.*", len(ids)))
		for i := range ids {
			b.wantEnd("mandate.enroll", "succeeded", fmt.Sprint("MANDATE_REQUESTS-", i+1))
		}
	})
}
