package consumer

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// answering gives a message to whoever asks before the pull is taken back.
type answering struct {
	jetstream.MessagesContext
	drained bool
}

func (a *answering) Next(...jetstream.NextOpt) (jetstream.Msg, error) {
	if a.drained {
		return nil, jetstream.ErrMsgIteratorClosed
	}
	return struct{ jetstream.Msg }{}, nil
}

func (a *answering) Drain() { a.drained = true }
func (a *answering) Stop()  { a.drained = true }

// A server that is told of the withdrawal while its answer is on the way delivers in
// vain: the answer to a young pull is waited for, an old one has had its time.
func TestAYoungPullIsAnsweredBeforeItIsTakenBack(t *testing.T) {
	for age, want := range map[time.Duration]bool{0: true, time.Minute: false} {
		it := &answering{}
		if got := withdraw(it, time.Now().Add(-age)); (got != nil) != want || !it.drained {
			t.Errorf("a pull of %v: got %v, taken back: %v", age, got, it.drained)
		}
	}
}
