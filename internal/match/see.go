package match

import (
	"iter"
	"time"

	"errand/pkg/messages"
)

// State is what was seen of a recipient last.
type State uint8

// The states. Unseen: it has no row.
const (
	Unseen State = iota
	Delivered
	Deferred
	Bounced
	Unknown
	states
)

// Counts is how many recipients are in each state.
type Counts [states]int

// StateOf is the state that a delivery event tells.
func StateOf(s messages.State) State {
	switch s {
	case messages.Delivered:
		return Delivered
	case messages.Deferred:
		return Deferred
	case messages.Bounced:
		return Bounced
	}
	return Unknown
}

// overdue marks, beside the state, a recipient that was told to be overdue. That counts
// while it has no row.
const overdue = 1 << 7

// See notes what was seen of a recipient and gives what was seen of it before; what was
// delivered stays so, and what bounced too unless it is delivered yet: another state that
// comes after that is an older one. ok: it is known.
func (x *Index) See(request string, number, recipient int, s State) (before, after State, ok bool) {
	b, e := x.recipient(request, number, recipient)
	if e == nil {
		return 0, 0, false
	}
	before, after = State(e.state&^overdue), s
	if before == Unseen {
		b.seen++
	}
	if before == Delivered || before == Bounced && s != Delivered {
		after = before
	}
	e.state = uint8(after)
	return before, after, true
}

func (x *Index) recipient(request string, number, recipient int) (*batch, *entry) {
	g, b := x.find(request, number)
	if b == nil || recipient < int(b.first) || recipient >= int(b.first)+int(b.count) {
		return nil, nil
	}
	return b, &g.entries[int(b.start)+recipient-int(b.first)]
}

// Doubt notes a row that may belong to any of several batches, or to one by a wrong
// clock. It is noted once, however often it comes.
func (x *Index) Doubt(r Row) {
	found, _ := x.candidates(r)
	for _, c := range found {
		c.doubted = true
	}
}

// Evidence is what rows show of a batch.
type Evidence struct {
	Count   int       // recipients
	Seen    int       // of them, with a row of this batch
	Doubted bool      // there is a row that may be of this batch, or of another one or nobody's
	Until   time.Time // the last call was over by then
}

// Evidence gives that of a batch. ok: it is known.
func (x *Index) Evidence(request string, number int) (e Evidence, ok bool) {
	_, b := x.find(request, number)
	if b == nil {
		return Evidence{}, false
	}
	return Evidence{int(b.count), int(b.seen), b.doubted, time.UnixMilli(b.until)}, true
}

// Silent is a recipient that was accepted and has no row.
type Silent struct {
	Request          string
	Batch, Recipient int
	AcceptedAt       time.Time // at the latest
}

// Silent gives those that were accepted before a time and were not told to be overdue.
func (x *Index) Silent(before time.Time) iter.Seq[Silent] {
	return func(yield func(Silent) bool) {
		for _, g := range x.generations {
			for i := range g.batches {
				b := &g.batches[i]
				if !b.accepted || b.seen == b.count || len(b.spans) == 0 {
					continue
				}
				at := time.UnixMilli(b.spans[len(b.spans)-1].end)
				if !at.Before(before) {
					continue
				}
				for n, e := range g.entries[b.start : b.start+b.count] {
					if e.state == 0 && !yield(Silent{b.request, int(b.number), int(b.first) + n, at}) {
						return
					}
				}
			}
		}
	}
}

// Overdue notes that a recipient was told to be overdue.
func (x *Index) Overdue(request string, number, recipient int) {
	if _, e := x.recipient(request, number, recipient); e != nil {
		e.state |= overdue
	}
}
