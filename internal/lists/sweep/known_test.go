package sweep

import (
	"encoding/binary"
	"testing"
	"time"
)

// Half a million states take 8 bytes each, and those that were stored last some more.
func TestKnownStatesTakeLittleMemory(t *testing.T) {
	idOf := func(n uint64) (id ID) {
		binary.BigEndian.PutUint64(id[8:], n*0x9e3779b97f4a7c15)
		return id
	}
	const n = 1 << 19
	before := heap()
	var k known
	for i := range uint64(n) {
		k.add(idOf(i), time.Now())
	}
	if bytes := heap() - before; bytes > 16*n+8<<20 {
		t.Errorf("%d bytes a state", bytes/n)
	}
	for i := range uint64(n + n/2) {
		if k.stored(idOf(i)).IsZero() == (i < n) {
			t.Fatalf("%d is known: %t", i, i >= n)
		}
	}
	k.drop(time.Now().Add(watchOpen+time.Hour), time.Now())
	if !k.stored(idOf(1)).IsZero() {
		t.Error("what is no longer kept is still known")
	}
}
