package deliveries

import (
	"cmp"
	"hash/maphash"
	"iter"
	"math"
	"slices"

	"errand/internal/wire/mailkey"
)

var seed = maphash.MakeSeed()

// index finds entries of a slice by their hash. It takes a quarter of a map's memory: it holds the first entry of each
// chain, plus one, and an entry has the next one in its chain, likewise. 0 means the end.
type index struct {
	first []uint32
	hash  func(uint32) uint64
	next  func(uint32) *uint32
}

// add adds the entry that follows all others.
func (x *index) add(n uint32) {
	from := n
	if int(n) >= len(x.first) {
		x.first, from = make([]uint32, max(16, 2*n)), 0
	}
	for ; from <= n; from++ {
		first := x.at(x.hash(from))
		*x.next(from), *first = *first, from+1
	}
}

func (x *index) at(hash uint64) *uint32 {
	return &x.first[hash*0x9e3779b97f4a7c15>>32*uint64(len(x.first))>>32]
}

// chain yields the entries with a hash, and others.
func (x *index) chain(hash uint64) iter.Seq[uint32] {
	return func(yield func(uint32) bool) {
		if len(x.first) == 0 {
			return
		}
		for n := *x.at(hash); n > 0 && yield(n-1); {
			n = *x.next(n - 1)
		}
	}
}

// begun is a call to an address that many are made to. They are in the order of their begin: a row looks only at those that
// it can be of.
type begun struct {
	at        int64
	recipient uint32
}

const (
	maxIdle    = 16 // recipients with an address that is not busy
	maxSettled = 64 // recipients that have their row and are looked at for another one
)

func (g *generation) addRecipient(address mailkey.Key, b uint32) {
	i := uint32(len(g.recipients))
	g.recipients = append(g.recipients, recipient{address: address, batch: b})
	g.byAddress.add(i)
	same := []uint32{i}
	if _, busy := g.busy[address]; !busy {
		if same = slices.AppendSeq(same[:0], g.withAddress(address)); len(same) <= maxIdle {
			return
		}
		g.busy[address] = nil
	}
	for _, n := range same {
		for s := range g.spans(g.recipients[n].batch) {
			g.insert(n, *s)
		}
	}
}

// withAddress yields the recipients with an address, the last first.
func (g *generation) withAddress(address mailkey.Key) iter.Seq[uint32] {
	return func(yield func(uint32) bool) {
		for n := range g.byAddress.chain(uint64(address)) {
			if g.recipients[n].address == address && !yield(n) {
				return
			}
		}
	}
}

// insert adds a call to a recipient, if its address is busy.
func (g *generation) insert(i uint32, s span) {
	address := g.recipients[i].address
	if all, busy := g.busy[address]; busy {
		g.busy[address] = slices.Insert(all, after(all, s.begin), begun{s.begin, i})
	}
}

// after is the index of the first call after a time.
func after(calls []begun, at int64) int {
	n, _ := slices.BinarySearchFunc(calls, at, func(c begun, at int64) int { return cmp.Or(cmp.Compare(c.at, at), -1) })
	return n
}

// near yields the recipients with an address that a row can be of, and others. Those of a busy one that have their row may
// be left out.
func (g *generation) near(address mailkey.Key, r row) iter.Seq[uint32] {
	calls, busy := g.busy[address]
	if !busy {
		return g.withAddress(address)
	}
	skew, at, from := r.skew(), r.accepted, r.accepted-maxLateness
	if at == 0 {
		at, from = r.created, r.created-maxQueueTime.Milliseconds()
	}
	if at == 0 {
		at, from = math.MaxInt64-skew, math.MinInt64/2
	}
	return func(yield func(uint32) bool) {
		settled := 0
		for i := after(calls, at+skew) - 1; i >= 0 && calls[i].at >= from-g.longest-skew && yield(calls[i].recipient); i-- {
			if g.isSettled(calls[i].recipient) {
				settled++
			}
		}
		if settled > maxSettled {
			g.busy[address] = slices.DeleteFunc(calls, func(c begun) bool { return g.isSettled(c.recipient) })
		}
	}
}
