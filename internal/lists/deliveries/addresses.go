package deliveries

import (
	"cmp"
	"iter"
	"math"
	"slices"

	"errand/pkg/messages"
)

// table finds the index of an entry by its hash. It holds nothing else: a quarter of what a map takes.
type table struct {
	slots []uint32 // an index plus one; 0 is free
	n     int
}

func (t *table) slot(hash uint64) int {
	return int(hash * 0x9e3779b97f4a7c15 >> 32 * uint64(len(t.slots)) >> 32)
}

// find returns the index that is the wanted one.
func (t *table) find(hash uint64, is func(uint32) bool) (uint32, bool) {
	if t.n == 0 {
		return 0, false
	}
	for i := t.slot(hash); t.slots[i] > 0; i = (i + 1) % len(t.slots) {
		if n := t.slots[i] - 1; is(n) {
			return n, true
		}
	}
	return 0, false
}

// put adds an index that it does not have. hashOf is the hash of an entry.
func (t *table) put(hash uint64, n uint32, hashOf func(uint32) uint64) {
	if t.n++; t.n > len(t.slots)*3/4 {
		old := t.slots
		t.slots = make([]uint32, max(16, len(old)*3/2))
		for _, entry := range old {
			if entry > 0 {
				t.set(hashOf(entry-1), entry)
			}
		}
	}
	t.set(hash, n+1)
}

func (t *table) set(hash uint64, entry uint32) {
	i := t.slot(hash)
	for t.slots[i] > 0 {
		i = (i + 1) % len(t.slots)
	}
	t.slots[i] = entry
}

// busy is the calls to an address that many are made to, in the order of their begin: a row looks only at those that it can
// be of.
type busy struct {
	calls []begun // perhaps without those that have their row
}

type begun struct {
	at        int64
	recipient uint32
}

const (
	maxIdle    = 16 // recipients with an address that is not busy
	maxSettled = 64 // recipients that have their row and are looked at for another one
)

func (g *generation) addRecipient(address messages.Key, b uint32) {
	i := uint32(len(g.recipients))
	g.recipients = append(g.recipients, recipient{address: address, batch: b})
	first, ok := g.byAddress.find(uint64(address), func(n uint32) bool { return g.recipients[n].address == address })
	if !ok {
		g.byAddress.put(uint64(address), i, func(n uint32) uint64 { return uint64(g.recipients[n].address) })
		return
	}
	g.recipients[i].next, g.recipients[first].next = g.recipients[first].next, i+1
	if g.busy[address] != nil {
		g.insert(i, g.spans(b)...)
		return
	}
	all := []uint32{first}
	for n := g.recipients[first].next; n > 0; n = g.recipients[n-1].next {
		all = append(all, n-1)
	}
	if len(all) > maxIdle {
		g.busy[address] = &busy{}
		for _, n := range all {
			g.insert(n, g.spans(g.recipients[n].batch)...)
		}
	}
}

// insert adds calls to a recipient, if its address is busy.
func (g *generation) insert(i uint32, calls ...span) {
	b := g.busy[g.recipients[i].address]
	if b == nil {
		return
	}
	for _, s := range calls {
		b.calls = slices.Insert(b.calls, after(b.calls, s.begin), begun{s.begin, i})
	}
}

// after is the index of the first call after a time.
func after(calls []begun, at int64) int {
	n, _ := slices.BinarySearchFunc(calls, at, func(c begun, at int64) int { return cmp.Or(cmp.Compare(c.at, at), -1) })
	return n
}

// withAddress yields the recipients with an address that a row can be of, and others.
func (g *generation) withAddress(address messages.Key, r row) iter.Seq[uint32] {
	return func(yield func(uint32) bool) {
		if b := g.busy[address]; b != nil {
			g.near(b, r, yield)
			return
		}
		i, ok := g.byAddress.find(uint64(address), func(n uint32) bool { return g.recipients[n].address == address })
		for ok && yield(i) && g.recipients[i].next > 0 {
			i = g.recipients[i].next - 1
		}
	}
}

// near yields the recipients of calls that were made before a row, from the latest on.
func (g *generation) near(b *busy, r row, yield func(uint32) bool) {
	skew := r.skew()
	at, from := r.accepted, r.accepted-g.longest-maxLateness
	if at == 0 {
		at, from = r.created, r.created-g.longest-maxQueueTime.Milliseconds()
	}
	if at == 0 {
		at, from = math.MaxInt64-skew, 0
	}
	settled := 0
	for i := after(b.calls, at+skew) - 1; i >= 0 && b.calls[i].at >= from-skew && yield(b.calls[i].recipient); i-- {
		if g.isSettled(b.calls[i].recipient) {
			settled++
		}
	}
	if settled > maxSettled {
		b.calls = slices.DeleteFunc(b.calls, func(c begun) bool { return g.isSettled(c.recipient) })
	}
}
