package sweep

import (
	"testing"
	"time"
)

// A mark is written to the millisecond: what was stored in the one before it was stored
// before it, and rows behind it were published.
func TestWhatWasStoredJustBeforeAMarkIsProven(t *testing.T) {
	mark := time.Now().Truncate(time.Millisecond)
	before, after := ID{1}, ID{2}
	p := newPublisher(&list{}, &sink{store: &store{told: map[ID]int{}, events: []Stored{
		{before, mark.Add(400 * time.Microsecond)}, {after, mark.Add(time.Second)}}}})
	if err := p.learn(t.Context(), mark, false); err != nil {
		t.Fatal(err)
	}
	p.number++
	if p.isUnproven(before) {
		t.Error("what was stored within the mark's millisecond is unproven")
	}
	if !p.isUnproven(after) {
		t.Error("what was stored a second after the mark is not unproven")
	}
}
