package transactions

import (
	"crypto/sha256"
	"encoding/binary"
	"sync"
	"time"

	"errand/internal/lists/sweep"
	"errand/internal/retry"
)

// states knows the last state of each record: the last one that any poller published, or else the first one that this process saw.
//
// The id of a state has 8 bytes for the record, 6 for the state and 2 for the number of states before it, so that a state that
// returns has another id. These 2 are XORed with the record's last 2: the last 8 bytes are uniform, and readable without the record.
// Of a million records with three states each, one is taken for another with odds of 1 in 4 million (64 bits), and one change is
// missed with odds of 1 in 90 million (48 bits). The number begins again after 65,536 states.
type states struct {
	mu   sync.Mutex
	last map[uint64]last // by record
}

// last is the second half of the id of a record's last state and, if this process looked that up, of the one before; and when it was seen.
type last struct {
	state, before uint64
	seen          time.Time
}

// identify returns the id of the state that a reading shows of a record, and the state before it: the same if it is the last one.
// A reading that was asked for before the last change was seen may show an older state, and soon after a look-up the one before: it counts
// as showing the last one.
func (s *states) identify(r Record, asked time.Time) (id, before sweep.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, there := s.last[r.key]; !there {
		s.last[r.key] = last{state: half(r, 0), seen: time.Now()}
	}
	last := s.last[r.key]
	state := last.state
	late := asked.Before(last.seen) || (last.before^r.state)>>16 == 0 && asked.Before(last.seen.Add(retry.ListIsLate))
	if (state^r.state)>>16 != 0 && !late {
		state = half(r, number(r.key, state)+1)
	}
	return join(r.key, state), join(r.key, last.state)
}

// isNext reports whether no other state was published since a record was read: that may be the later one.
func (s *states) isNext(row sweep.Row[Record]) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := join(row.ID.Key(), s.last[row.ID.Key()].state)
	return last == row.Before || last == row.ID
}

// note notes that a state was published: by this poller, which looked it up, after the one before, or by any.
func (s *states) note(id, before sweep.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key, state := id.Key(), id.State()
	was, there := s.last[key]
	if !there || was.state != state && int16(number(key, state)-number(key, was.state)) >= 0 { // states of erased events come in any order
		s.last[key] = last{state, before.State(), time.Now()}
	}
}

// half is what an id says of the state of a record with so many before it.
func half(r Record, before uint16) uint64 { return r.state&^0xffff | uint64(before^uint16(r.key)) }

// number is how many states came before one, but for 65,536.
func number(key, state uint64) uint16 { return uint16(key) ^ uint16(state) }

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
