package history

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"errand/pkg/messages"
)

// Whatever is too large becomes small in a few steps and says so; what a reader
// cannot do without stays.
func TestABodyIsAbridgedUntilItIsSmall(t *testing.T) {
	long := strings.Repeat("x", 600)
	fields := map[string][]string{}
	var records []json.RawMessage
	var invalid []messages.InvalidAddress
	var unsettled []messages.Unsettled
	answer := map[string]any{"url": "https://pay.example/?a=1&b=2", "status": "ok", "blob": strings.Repeat("x", 400<<10)}
	for i := range 2000 {
		fields[fmt.Sprint("f", i)] = []string{long}
		records = append(records, json.RawMessage(`"`+long+`"`))
		invalid = append(invalid, messages.InvalidAddress{Address: long, Reason: long})
		unsettled = append(unsettled, messages.Unsettled{Batch: i + 1, Message: long})
		answer[fmt.Sprint("m", i)] = i
	}
	object, _ := json.Marshal(answer)
	for _, c := range []struct {
		body  messages.Body
		keeps string
	}{
		{&messages.EnrollSucceeded{OrderNumber: "o", Enrollment: object}, `"url":"https://pay.example/?a=1\u0026b=2"`},
		{&messages.EnrollUncertain{Reason: messages.ReasonLinkLost, Evidence: records}, `"reason":"link_lost"`},
		{&messages.TransactionsPage{Page: 3, Records: records, Total: 4000}, `"total":4000`},
		{&messages.AccountReported{Account: object, Fingerprint: "f"}, `"fingerprint":"f"`},
		{&messages.FailedBody{Reason: messages.ReasonRefused, Message: "no", Fields: fields}, `"message":"no"`},
		{&messages.SendOutcome{Reason: messages.ReasonRefused, InvalidCount: 2000,
			Invalid:        invalid,
			UnsettledCount: 2000, Unsettled: unsettled, Fields: fields},
			`"invalid_count":2000`},
	} {
		steps, size, last := 0, encodedSize(t, c.body), ""
		for ; size > 2<<10; steps++ {
			if !Abridge(c.body) {
				t.Fatalf("%T: nothing to leave out of %d bytes", c.body, size)
			}
			size = encodedSize(t, c.body)
		}
		data, err := messages.Event{Body: c.body}.Encode()
		if last = string(data); err != nil || !strings.Contains(last, c.keeps) || !strings.Contains(last, `"abridged":true`) {
			t.Errorf("%T: %v, want %s and the mark in %s", c.body, err, c.keeps, last)
		}
		if steps > 20 {
			t.Errorf("%T: %d steps", c.body, steps)
		}
		for Abridge(c.body) { // comes to an end
			steps++
		}
		if steps > 40 || encodedSize(t, c.body) < 20 {
			t.Errorf("%T: %d steps to the end", c.body, steps)
		}
		if data, _ := (messages.Event{Body: c.body}).Encode(); !strings.Contains(string(data), c.keeps) {
			t.Errorf("%T: at the end %s is gone from %s", c.body, c.keeps, data)
		}
	}
}

// What fits is half when half is enough: no more is left out than must be.
func TestAbridgingLeavesTheFirstHalf(t *testing.T) {
	b := &messages.EnrollUncertain{Evidence: []json.RawMessage{[]byte("1"), []byte("2"), []byte("3"), []byte("4")}}
	if !Abridge(b) || len(b.Evidence) != 2 || string(b.Evidence[0]) != "1" || !b.Abridged {
		t.Errorf("got %+v", b)
	}
	for _, b := range []messages.Body{&messages.EnrollStarted{}, &messages.BatchBody{},
		&messages.EnrollSucceeded{Enrollment: []byte(`{"url":"u"}`)},
		&messages.AccountReported{Account: []byte(`{}`)},
		&messages.EnrollUncertain{}, &messages.FailedBody{}, &messages.SendOutcome{},
		&messages.ReopenedBody{Why: "why", Batches: []int{1, 2, 3}}} {
		if Abridge(b) || b.Head().Abridged {
			t.Errorf("%T: is abridged, and has nothing to spare", b)
		}
	}
}

func encodedSize(t *testing.T, b messages.Body) int {
	t.Helper()
	data, err := messages.Event{Body: b}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return len(data)
}
