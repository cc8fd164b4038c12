package transactions

import (
	"crypto/sha256"
	"encoding/binary"
	"sync"

	"errand/internal/lists/sweep"
)

// states knows the last state of each record: the last one that any poller published, or else the first one that this process saw.
//
// The id of a state has 8 bytes for the record, 6 for the state and 2 for the number of states before it, so that a state that
// returns has another id. These 2 are XORed with the record's last 2: the last 8 bytes are uniform, and readable without the record.
// Of a million records with three states each, one is taken for another with odds of 1 in 4 million (64 bits), and one change is
// missed with odds of 1 in 90 million (48 bits). The number begins again after 65,536 states.
type states struct {
	mu      sync.Mutex
	last    map[uint64]last // by record
	changes uint64          // so far
}

// last is the second half of the id of a record's last state, and the number of that change.
type last struct{ state, change uint64 }

// reset forgets all states.
func (s *states) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = map[uint64]last{}
}

// asked is to be called before a reading, for identify.
func (s *states) asked() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changes
}

// identify returns the id of the state that a reading shows of a record, and the state before it: the same if it is the last one.
// A reading that was asked for before the last change may show an older state: it counts as showing the last one.
func (s *states) identify(r Record, asked uint64) (id sweep.ID, before uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, there := s.last[r.key]; !there {
		s.set(r.key, half(r, 0))
	}
	last := s.last[r.key]
	state := last.state
	if (state^r.state)>>16 != 0 && asked >= last.change {
		state = half(r, number(r.key, state)+1)
	}
	return join(r.key, state), last.state
}

// begin notes that a state is being published, unless another one is or was since its record was read: that may be the later one.
func (s *states) begin(r Record, id sweep.ID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, state := split(id)
	if last := s.last[r.key].state; last != r.before && last != state {
		return false
	}
	s.set(r.key, state)
	return true
}

// fail notes that a state was not published, as far as is known.
func (s *states) fail(r Record, id sweep.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, state := split(id); s.last[r.key].state == state {
		s.last[r.key] = last{r.before, s.last[r.key].change}
	}
}

// note notes that a state was published by any poller.
func (s *states) note(id sweep.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key, state := split(id)
	last, there := s.last[key]
	if !there || last.state != state && int16(number(key, state)-number(key, last.state)) >= 0 { // states of erased events come in any order
		s.set(key, state)
	}
}

func (s *states) set(key, state uint64) {
	s.changes++
	s.last[key] = last{state, s.changes}
}

// half is what an id says of the state of a record with so many before it.
func half(r Record, before uint16) uint64 { return r.state&^0xffff | uint64(before^uint16(r.key)) }

// number is how many states came before one, but for 65,536.
func number(key, state uint64) uint16 { return uint16(key) ^ uint16(state) }

func split(id sweep.ID) (key, state uint64) {
	return binary.BigEndian.Uint64(id[:8]), binary.BigEndian.Uint64(id[8:])
}

func join(key, state uint64) (id sweep.ID) {
	binary.BigEndian.PutUint64(id[:8], key)
	binary.BigEndian.PutUint64(id[8:], state)
	return id
}

// hash is 8 bytes of the SHA-256 of texts.
func hash(texts string) uint64 {
	sum := sha256.Sum256([]byte(texts))
	return binary.BigEndian.Uint64(sum[:])
}
