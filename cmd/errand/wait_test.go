package main

import (
	"fmt"
	"strings"
	"testing"
)

// It was taken out of the queue.
func TestWaitDoesNotSayThatARequestIsQueuedThatIsNot(t *testing.T) {
	t.Parallel()
	n, js := provisioned(t)
	queue, err := js.Stream(t.Context(), "MAIL_REQUESTS")
	if err != nil {
		t.Fatal(err)
	}
	letter := letterTo(n, "gone", "--timeout", "200ms")
	wantExit(t, 4, "queued, place 1", letter...)
	if err := queue.DeleteMsg(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	err = failing(t, "no outcome", letter...) // a duplicate for JetStream
	if strings.Contains(err.Error(), "queued") {
		t.Error(err)
	}
}

// The third is the first again for JetStream, which drops it; what the id has is the second's.
func TestWaitDoesNotSayThatAProgramHasWhatItSettled(t *testing.T) {
	t.Parallel()
	n, js := provisioned(t)
	first := letterTo(n, "aba", "--timeout", "200ms")
	wantExit(t, 4, "queued", first...)
	queue, err := js.Consumer(t.Context(), "MAIL_REQUESTS", "mail-send")
	if err != nil {
		t.Fatal(err)
	}
	m, err := queue.Next()
	if err != nil {
		t.Fatal(err)
	}
	wantExit(t, 4, "queued: no mail-consumer answers", first...)
	answer(t, js, "mail.send.failed.aba", fmt.Sprintf(`{"fingerprint":%q}`, "the correction's"))
	if err := m.DoubleAck(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantExit(t, 4, "it was settled before", first...)
}
