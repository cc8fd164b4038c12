package match

import (
	"iter"
	"time"

	"errand/pkg/messages"
)

// State is the last state of a recipient.
type State uint8

// The states. Unseen: the recipient has no row.
const (
	Unseen State = iota
	Delivered
	Deferred
	Bounced
	Unknown
	states
)

// Counts is the number of recipients in each state.
type Counts [states]int

// StateOf is the state in a delivery event.
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

// reportedOverdue is a flag beside the state: the recipient was reported as overdue. It
// matters only while the recipient has no row.
const reportedOverdue = 1 << 7

// Observe records a state of a recipient, and returns the state before and after. Delivered
// stays, and Bounced stays unless Delivered follows: any other state that is learned later
// is an older one. ok is false if the recipient is unknown.
func (x *Index) Observe(request string, number, recipient int, s State) (before, after State, ok bool) {
	b, e := x.recipient(request, number, recipient)
	if e == nil {
		return 0, 0, false
	}
	before, after = State(e.state&^reportedOverdue), s
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

// Doubt records a row that may belong to any of several batches, or to one if a clock is
// wrong. Recording it again changes nothing.
func (x *Index) Doubt(r Row) {
	found, _ := x.candidates(r)
	for _, c := range found {
		c.doubted = true
	}
}

// Evidence is what the rows show about a batch.
type Evidence struct {
	Count   int       // recipients
	Seen    int       // recipients with a row of this batch
	Doubted bool      // there is a row that may or may not belong to this batch
	Until   time.Time // the last call had ended by then
}

// Evidence returns the evidence for a batch. ok is false if the batch is unknown.
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
	AcceptedAt       time.Time // the latest possible time
}

// Silent yields the recipients that were accepted before a time, have no row and were
// not reported as overdue.
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

// MarkOverdue records that a recipient was reported as overdue.
func (x *Index) MarkOverdue(request string, number, recipient int) {
	if _, e := x.recipient(request, number, recipient); e != nil {
		e.state |= reportedOverdue
	}
}
