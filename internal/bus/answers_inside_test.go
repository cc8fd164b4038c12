package bus

import (
	"errors"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
)

// say answers the write that waits on a slot.
func (a *answers) say(s *slot, seq uint64) {
	a.came(&nats.Msg{Subject: s.subject, Data: fmt.Appendf(nil, `{"stream":"S","seq":%d}`, seq)})
}

// A reply subject that no later write uses is forgotten with its write: else each mail would
// leave one for as long as the program runs.
func TestAReplySubjectIsKeptOnlyToBeUsedAgain(t *testing.T) {
	a := newAnswers("x.")
	for n := range uint64(100) {
		s := a.take("S", n%2 == 0)
		a.say(s, n+1)
		_, err := s.wait(t.Context())
		a.leave(s, "S", err)
	}
	if n := len(a.slots); n != 1 {
		t.Errorf("%d reply subjects are kept after one write at a time, want 1", n)
	}
}

// A stream that was made again, or restored, begins with lower sequences. No write is believed
// to be stored by that; but only one has to find out.
func TestAStreamThatBeginsAnewDelaysOneWrite(t *testing.T) {
	a := newAnswers("x.")
	var before []*slot
	for range 10 {
		before = append(before, a.take("S", true))
	}
	for n, s := range before {
		a.say(s, uint64(1000+n))
		_, err := s.wait(t.Context())
		a.leave(s, "S", err)
	}
	lost := 0
	for n := range uint64(20) {
		s := a.take("S", true)
		a.say(s, n+1)
		for s.waits {
			a.tick()
		}
		_, err := s.wait(t.Context())
		if a.leave(s, "S", err); errors.Is(err, ErrNoAck) {
			lost++
		}
	}
	if lost != 1 {
		t.Errorf("%d writes had no answer, want 1", lost)
	}
}
