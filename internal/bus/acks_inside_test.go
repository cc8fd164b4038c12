package bus

import (
	"errors"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
)

// answer answers a write.
func (a *acks) answer(w *Writes, i int, data string) {
	subject := w.subject
	if len(w.results) > 1 {
		subject += fmt.Sprint(".", i)
	}
	a.receive(&nats.Msg{Subject: subject, Data: []byte(data)})
}

func storedAt(seq uint64) string { return fmt.Sprintf(`{"stream":"S","seq":%d}`, seq) }

// A reply subject that no later write uses is forgotten with its write: else each mail would
// leave one for as long as the program runs.
func TestAReplySubjectIsKeptOnlyToBeUsedAgain(t *testing.T) {
	a := newAcks("x.")
	for n := range uint64(100) {
		w := a.take("S", n%2 == 0)
		a.answer(w, 0, storedAt(n+1))
		_, _, _ = w.Wait(t.Context())
	}
	if n := len(a.known); n != 1 || a.underWay != 0 {
		t.Errorf("%d reply subjects are kept after one write at a time, want 1; %d messages are under way", n, a.underWay)
	}
}

// A stream that was made again, or restored, begins with lower sequences. No write is believed
// to be stored by that; but only one has to find out.
func TestAStreamThatStartsOverDelaysOneWrite(t *testing.T) {
	a := newAcks("x.")
	var before []*Writes
	for range 10 {
		before = append(before, a.take("S", true))
	}
	for n, w := range before {
		a.answer(w, 0, storedAt(uint64(1000+n)))
		_, _, _ = w.Wait(t.Context())
	}
	lost := 0
	for n := range uint64(20) {
		w := a.take("S", true)
		a.answer(w, 0, storedAt(n+1))
		for w.left > 0 {
			a.tick()
		}
		if _, _, err := w.Wait(t.Context()); errors.Is(err, ErrNoAck) {
			lost++
		}
	}
	if lost != 1 {
		t.Errorf("%d writes had no answer, want 1", lost)
	}
}

const anotherInFlight = `{"error":{"code":400,"err_code":10164}}`

// In a cluster the answer that a write is refused, since another is in flight, comes
// before the one that this other is stored.
func TestARefusalThatOvertakesSaysWhyTheWritesEnded(t *testing.T) {
	a := newAcks("x.")
	w := a.Begin("S", 3, false, new(uint64))
	a.answer(w, 1, anotherInFlight)
	if stored, _, err := w.Wait(t.Context()); stored != 0 || !IsInFlight(err) {
		t.Errorf("got %d, %v; want 0 and the refusal", stored, err)
	}
	if len(a.known) != 0 || a.underWay != 0 {
		t.Errorf("the writes are kept; %d messages are under way", a.underWay)
	}
}

// What is behind a message that could not be sent is never answered.
func TestAMessageThatCannotBeSentEndsTheWait(t *testing.T) {
	a, why := newAcks("x."), errors.New("it is too large")
	w := a.Begin("S", 3, false, new(uint64))
	w.sent = 1
	w.Abort(why)
	if len(w.done) != 0 {
		t.Error("the message before it is not waited for")
	}
	a.answer(w, 0, storedAt(7))
	if len(w.done) != 1 {
		t.Error("it is waited for")
	}
	if stored, _, err := w.Wait(t.Context()); stored != 1 || !errors.Is(err, why) {
		t.Errorf("got %d, %v; want 1 and %v", stored, err, why)
	}
}

// A write that is stored where its writer knew of later messages shows that those are gone. A subject that
// was used before does not show it: there the answer may be an earlier write's.
func TestASequenceThatTheStreamHadPassedShowsThatItIsOlder(t *testing.T) {
	a, highest := newAcks("x."), uint64(10)
	w := a.Begin("S", 2, false, &highest)
	later := a.Begin("S", 1, true, &highest)
	a.answer(w, 0, storedAt(11))
	a.answer(w, 1, storedAt(10))
	if stored, _, err := w.Wait(t.Context()); stored != 1 || !errors.Is(err, ErrSetBack) || highest != 11 {
		t.Errorf("got %d, %v, highest %d; want 1, %v, 11", stored, err, highest, ErrSetBack)
	}
	a.answer(later, 0, storedAt(12))
	if stored, _, err := later.Wait(t.Context()); stored != 1 || err != nil || highest != 12 {
		t.Errorf("got %d, %v, highest %d; want 1, no error, 12", stored, err, highest)
	}
}

// When the connection breaks, nothing that was written before is waited for: neither one write nor several.
func TestALostConnectionEndsEveryWait(t *testing.T) {
	a, highest := newAcks("x."), uint64(0)
	free := a.take("S", true)
	one, several, batch := a.take("S", true), a.Begin("S", 3, false, &highest), a.Begin("S", 3, true, &highest)
	a.answer(several, 0, storedAt(1))
	a.answer(free, 0, storedAt(5))
	_, _, _ = free.Wait(t.Context())
	a.lost()                      // the next server may have lost some of it
	a.answer(one, 0, storedAt(2)) // late
	for want, w := range []*Writes{one, several, batch} {
		if stored, _, err := w.Wait(t.Context()); stored != want%2 || !errors.Is(err, errBroken) {
			t.Errorf("got %d, %v; want %d, %v", stored, err, want%2, errBroken)
		}
	}
	if len(a.known) != 0 || len(a.free) != 0 {
		t.Errorf("%d reply subjects are kept", len(a.known))
	}
}

// Many writes are waited for longer: the server answers one after the other.
func TestSilenceIsFinalLaterForManyWrites(t *testing.T) {
	a := newAcks("x.")
	first := a.Begin("S", 1000, false, new(uint64))
	second := a.Begin("S", 1000, true, new(uint64))
	given := map[*Writes]int{}
	for n := 1; n < 100; n++ {
		a.tick()
		for _, w := range []*Writes{first, second} {
			if len(w.done) == 1 && given[w] == 0 {
				given[w] = n
			}
		}
	}
	if given[first] != 15 || given[second] != 19 { // each tick is 500 ms
		t.Errorf("given up at ticks %d and %d, want 15 and 19", given[first], given[second])
	}
	if _, _, err := second.Wait(t.Context()); !errors.Is(err, ErrNoAck) {
		t.Errorf("got %v, want %v", err, ErrNoAck)
	}
}
