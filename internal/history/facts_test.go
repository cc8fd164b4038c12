package history

import (
	"testing"

	"errand/pkg/messages"
)

func TestFactsAreReadFromAnyEvent(t *testing.T) {
	started := messages.Event{Operation: messages.Send, State: messages.Started,
		Body: &messages.SendStarted{Common: messages.Common{RequestID: "a", Attempt: 2}, Fingerprint: "f",
			Batches: 3, Recipients: 9}}
	body, err := started.Encode()
	if err != nil {
		t.Fatal(err)
	}
	f, err := ReadFacts(body)
	if err != nil || f.RequestID != "a" || f.Attempt != 2 || f.Fingerprint != "f" || f.Batches != 3 || f.Recipients != 9 {
		t.Errorf("got %+v, %v", f, err)
	}
	f, err = ReadFacts([]byte(`{"batches":[1,2],"by":"ann","was":{"state":"failed","reason":"refused"}}`))
	if err != nil || f.Batches != 0 || f.By != "ann" ||
		f.Was != (messages.PriorOutcome{State: messages.Failed, Reason: messages.ReasonRefused}) {
		t.Errorf("reopened: got %+v, %v", f, err)
	}
	if f, err = ReadFacts([]byte(`{"reason":7,"order_number":"DD001"}`)); err == nil || f.OrderNumber != "DD001" {
		t.Errorf("of another type: got %+v, %v", f, err)
	}
}
