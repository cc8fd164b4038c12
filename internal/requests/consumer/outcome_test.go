package consumer

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"errand/pkg/messages"
)

// What did not go well is a warning that says why in our words, once: a repeat of it is nothing new.
func TestWhatDidNotGoWellIsAWarningWithItsReason(t *testing.T) {
	const values = "ann@example.test is not a name"
	for _, c := range []struct {
		what, stored string
		body         messages.Body
		state        messages.State
		repeated     bool
		want         string
		counted      Outcome
	}{
		{what: "it succeeded", state: messages.Succeeded, body: &messages.EnrollSucceeded{Enrollment: json.RawMessage(`{}`)},
			want:    `{"level":"info","state":"succeeded"}`,
			counted: Outcome{State: messages.Succeeded}},
		{what: "it failed", state: messages.Failed, body: &messages.FailedBody{Reason: messages.ReasonRefused, Message: values, HTTPStatus: 422,
			Fields: map[string][]string{"payer_name": {values}, "amount": {values}, values: {values}, "900101015555": {values}}},
			want:    `{"level":"warn","state":"failed","reason":"refused","http_status":422,"fields":["?","amount","payer_name"]}`,
			counted: Outcome{State: messages.Failed, Reason: messages.ReasonRefused, DeadLetter: true}},
		{what: "it is uncertain", state: messages.Uncertain, body: &messages.EnrollUncertain{Reason: messages.ReasonNoAnswer, Message: values},
			want:    `{"level":"warn","state":"uncertain","reason":"no_answer","http_status":0,"fields":[]}`,
			counted: Outcome{State: messages.Uncertain, Reason: messages.ReasonNoAnswer, DeadLetter: true}},
		{what: "it is partial", state: messages.Partial, body: &messages.SendOutcome{UnsettledCount: 2, Unsettled: []messages.Unsettled{
			{State: messages.Accepted, Reason: messages.ReasonShortCount}, {State: messages.Refused, Reason: messages.ReasonRefused, HTTPStatus: 413,
				Message: values}}},
			want:    `{"level":"warn","state":"partial","reason":"refused","http_status":413,"fields":[]}`,
			counted: Outcome{State: messages.Partial, Reason: messages.ReasonRefused, DeadLetter: true}},
		{what: "it was taken short", state: messages.Partial, body: &messages.SendOutcome{UnsettledCount: 1,
			Unsettled: []messages.Unsettled{{State: messages.Accepted, Reason: messages.ReasonShortCount, Message: values}}},
			want:    `{"level":"warn","state":"partial","reason":"short_count","http_status":0,"fields":[]}`,
			counted: Outcome{State: messages.Partial, Reason: messages.ReasonShortCount}},
		{what: "it had failed", stored: `{"reason":"refused","http_status":422,"fields":{"amount":["` + values + `"]}}`, state: messages.Failed,
			repeated: true,
			want:     `{"level":"info","state":"failed","reason":"refused","http_status":422,"fields":["amount"]}`,
			counted:  Outcome{State: messages.Failed, Reason: messages.ReasonRefused, Repeated: true, DeadLetter: true}},
	} {
		h := newHarness(t)
		delivery := uint64(1)
		if c.stored != "" {
			delivery = 2
			h.log.Put("mandate.enroll."+string(c.state)+".a1", []byte(c.stored))
		}
		h.handle(ends(c.state, c.body))
		if got := h.deliver(t.Context(), request, delivery); got != "+ACK" {
			t.Fatalf("%s: got %s", c.what, got)
		}
		var got, want map[string]any
		line := h.said.String()
		if json.Unmarshal([]byte(line), &got) != nil || json.Unmarshal([]byte(c.want), &want) != nil {
			t.Fatalf("%s: the log is %s", c.what, line)
		}
		want["message"], want["op"], want["request_id"], want["attempt"], want["delivery"], want["took_ms"], want["repeated"] =
			"settled", "mandate.enroll", "a1", float64(0), float64(delivery), got["took_ms"], c.repeated
		if diff := cmp.Diff(want, got); diff != "" || strings.Contains(line, "ann@") {
			t.Errorf("%s (-want +got):\n%s%s", c.what, diff, line)
		}
		c.counted.Operation, c.counted.Took, c.counted.Age = messages.Enroll, h.last.Took, h.last.Age
		if h.last != c.counted || h.last.Age < h.last.Took {
			t.Errorf("%s: counted %+v, want %+v", c.what, h.last, c.counted)
		}
	}
}
