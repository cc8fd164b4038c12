package sweep

import (
	"cmp"
	"encoding/binary"
	"maps"
	"slices"
	"time"
)

// known is the set of published states, rebuilt from the events. It takes about 8 bytes a state.
type known struct {
	recent map[uint64]struct{}
	sealed []sealedStates
	open   map[uint64]openRow // rows whose state may change, by their keys
}

type openRow struct {
	since time.Time // when it was seen first
	seen  time.Time // when it was seen last; zero if by others only
	at    time.Time // when it was made, or its event
	place int       // in the list, when it was seen last
	state uint64    // short ID of the last state that is surely stored, for longer than its event is kept; 0 if none is
}

// sealedStates are states whose last event was stored at a time.
type sealedStates struct {
	ids    []uint64 // sorted
	stored time.Time
}

// maxRecent is the number of states that are sealed at once: in a map they take some twenty bytes each.
const maxRecent = 1 << 18

// watchOpen is how long a row whose state may change is watched: servers give up after five days (RFC 5321, 4.5.4.1).
const watchOpen = 5 * 24 * time.Hour

// short is what is kept of an ID: its second half.
func (id ID) short() uint64 { return binary.BigEndian.Uint64(id[8:]) }

func (k *known) has(id ID) bool {
	short := id.short()
	if _, ok := k.recent[short]; ok {
		return true
	}
	for _, s := range slices.Backward(k.sealed) {
		if _, ok := slices.BinarySearch(s.ids, short); ok {
			return true
		}
	}
	return false
}

func (k *known) add(id ID, stored time.Time) {
	if k.recent == nil {
		k.recent = map[uint64]struct{}{}
	}
	k.recent[id.short()] = struct{}{}
	if len(k.recent) < maxRecent {
		return
	}
	ids := slices.AppendSeq(make([]uint64, 0, len(k.recent)), maps.Keys(k.recent))
	slices.Sort(ids)
	k.sealed = append(k.sealed, sealedStates{ids, stored})
	clear(k.recent)
}

// stored notes that a state was stored.
func (k *known) stored(id ID, at time.Time) {
	k.add(id, at)
	if row, open := k.open[id.Key()]; open {
		row.state = id.short()
		k.open[id.Key()] = row
	}
}

// drop forgets what was published before a time, and rows that were watched long enough.
func (k *known) drop(kept, now time.Time) {
	k.sealed = slices.DeleteFunc(k.sealed, func(s sealedStates) bool { return s.stored.Before(kept) })
	maps.DeleteFunc(k.open, func(_ uint64, row openRow) bool { return now.Sub(row.since) > watchOpen })
}

// watch notes that the state of a row may still change, or will not.
func (k *known) watch(key uint64, final bool, row openRow) {
	if final {
		delete(k.open, key)
		return
	}
	if before, there := k.open[key]; there {
		row.since, row.state = before.since, cmp.Or(row.state, before.state)
	} else if !row.at.IsZero() && row.since.Sub(row.at) >= watchOpen {
		return
	}
	if k.open == nil {
		k.open = map[uint64]openRow{}
	}
	k.open[key] = row
}
