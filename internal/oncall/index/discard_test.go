package index

import (
	"testing"

	"github.com/nats-io/nats.go"

	"errand/internal/bus"
	"errand/pkg/messages"
)

// A repeat of a request that ended leaves another dead letter of the same ending, minutes later: what a person discarded stays so.
func TestARepeatDoesNotBringADiscardedDeadLetterBack(t *testing.T) {
	t.Parallel()
	in := provisioned(t)
	x := in.open(t.TempDir())
	x.Discarded = func(m bus.Message) (messages.Operation, string, uint64) { return messages.Enroll, "r1", m.Sequence }
	w, err := newWriter(x.store)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.close() })
	needed := func(page ...bus.Message) (n int) {
		t.Helper()
		if err := w.put(x.gather(page), Position{Stream: "s"}); err != nil {
			t.Fatal(err)
		}
		return len(in.listed(x, Filter{Dead: true, Needed: true}))
	}
	letter := func(sequence, ended uint64) bus.Message {
		return bus.Message{Subject: "dead.mandate.enroll.requested", Sequence: sequence, Data: []byte("{}"), Header: nats.Header{
			bus.HeaderRequestID: {"r1"}, nats.MsgIdHdr: {bus.DeadLetterID(messages.Enroll, "r1", ended)}}}
	}
	failed := func(sequence uint64) bus.Message {
		return bus.Message{Subject: "mandate.enroll.failed.r1", Sequence: sequence, Data: []byte(`{"reason":"refused"}`)}
	}
	discard := func(sequence uint64) bus.Message {
		return bus.Message{Subject: "audit.discard.ann.r1", Sequence: sequence}
	}
	for i, step := range []struct {
		page []bus.Message
		want int
	}{
		{[]bus.Message{failed(7)}, 0}, {[]bus.Message{letter(1, 7)}, 1}, {[]bus.Message{discard(1)}, 0},
		{[]bus.Message{letter(3, 7)}, 0}, {[]bus.Message{failed(9)}, 0}, {[]bus.Message{letter(5, 9), letter(6, 9)}, 1},
		{[]bus.Message{discard(5)}, 0}, {[]bus.Message{letter(8, 9)}, 0},
	} {
		if got := needed(step.page...); got != step.want {
			t.Errorf("step %d: %d dead letters need somebody, want %d", i, got, step.want)
		}
	}
}
