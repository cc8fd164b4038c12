package send

import (
	"fmt"
	"hash/maphash"
	"iter"

	"errand/internal/wire/mailbox"
	"errand/pkg/messages"
)

// plan is how a list of recipients is cut into batches; the same list and size always give the same plan.
type plan struct {
	size       int // recipients a batch
	recipients int // valid and distinct
	batches    int
	duplicates int
	invalid    []messages.InvalidAddress // the first hundred
	faults     int                       // how many are invalid
	kept       []string                  // the recipients, if they are at most maxKept or one batch
	out        set                       // which texts are left out: invalid ones and duplicates
	text       []byte                    // of the recipient that is compared
}

// batch is one call's share of the recipients.
type batch struct {
	number int // from 1
	first  int // index into the recipients, from 0
	to     []string
	left   []leftOut // not among to
}

// maxKept is how many recipients of several batches are kept until they are sent. Longer lists are read again.
const maxKept = 4000

// listFault is a rule that a list breaks, whenever it is read.
type listFault string

func (f listFault) Error() string { return "send: the recipient list " + string(f) }

// room is how many recipients of a list are compared in one reading, in a few megabytes.
const room = 100_000

// planned finds the invalid recipients and the duplicates of a list and counts what is left. Each call of texts reads the list
// from its beginning: once for every so many recipients as there is room to compare.
//
// about is an estimate of how many texts the list has, 0 if that is unknown. A list with more
// recipients than limit, or with more than twice as many texts, is refused; 0 means no limit.
//
// Errors: a listFault, which no repetition mends, or the list's error. With the fault that there is no recipient at all,
// the plan says what there is instead.
func planned(texts func() iter.Seq2[string, error], about, size, limit, room int) (plan, error) {
	p := plan{size: size, kept: make([]string, 0, min(about, max(size, maxKept)))}
	seen := make(map[recipient]struct{}, min(about, room))
	for from, rest := 0, 0; rest >= 0; from = rest {
		clear(seen)
		rest = -1 // the first text that there was no room for
		i := -1
		for text, err := range texts() {
			if i++; err != nil {
				return plan{}, err
			}
			if limit > 0 && i >= 2*limit {
				return plan{}, listFault(fmt.Sprintf("holds more than %d addresses, with duplicates and invalid ones", 2*limit))
			}
			if i < from || p.out.has(i) {
				continue
			}
			address, err := messages.ParseRecipient(text)
			if err != nil {
				p.leaveOut(i, text, err)
				continue
			}
			p.text = mailbox.Append(p.text[:0], address)
			r := recipient{maphash.Bytes(seeds[0], p.text), maphash.Bytes(seeds[1], p.text)}
			before := len(seen)
			met := false
			if before < room {
				seen[r] = struct{}{}
				met = len(seen) == before
			} else {
				_, met = seen[r]
			}
			switch {
			case met:
				p.out.add(i)
				p.duplicates++
			case before < room:
				if p.recipients++; p.recipients <= max(size, maxKept) {
					p.kept = append(p.kept, address)
				}
			case rest < 0:
				rest = i
			}
			if limit > 0 && p.recipients > limit {
				return plan{}, listFault(fmt.Sprintf("holds more than %d recipients", limit))
			}
		}
	}
	if p.recipients == 0 {
		return p, listFault("holds no valid address")
	}
	p.batches = (p.recipients + size - 1) / size
	if len(p.kept) < p.recipients {
		p.kept = nil
	}
	return p, nil
}

// leaveOut notes an invalid text.
func (p *plan) leaveOut(i int, text string, why error) {
	p.out.add(i)
	if p.faults++; p.faults <= messages.ListedInvalid {
		p.invalid = append(p.invalid, messages.InvalidAddress{Address: text, Reason: why.Error()})
	}
}

// cut yields the planned batches in order, reading the list again unless it was kept. An error comes after complete batches.
func (p *plan) cut(texts iter.Seq2[string, error]) iter.Seq2[batch, error] {
	return func(yield func(batch, error) bool) {
		for i := 0; i < len(p.kept); i += p.size {
			if !yield(batch{number: 1 + i/p.size, first: i, to: p.kept[i:min(i+p.size, len(p.kept))]}, nil) {
				return
			}
		}
		if len(p.kept) > 0 {
			return
		}
		next := batch{number: 1, to: make([]string, 0, p.size)}
		i := -1
		for text, err := range texts {
			if i++; err == nil && p.out.has(i) {
				continue
			}
			var address string
			if err == nil {
				address, err = messages.ParseRecipient(text)
			}
			if err != nil {
				yield(batch{}, err)
				return
			}
			next.to = append(next.to, address)
			if len(next.to) == p.size {
				if !yield(next, nil) {
					return
				}
				next = batch{number: next.number + 1, first: next.first + len(next.to), to: make([]string, 0, p.size)}
			}
		}
		if len(next.to) > 0 {
			yield(next, nil)
		}
	}
}

// recipient is equal for two texts that name one recipient: two hashes, with seeds that nobody can predict.
type recipient [2]uint64

var seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

// set is a set of small numbers, a bit each.
type set []uint64

func (s *set) add(i int) {
	for i/64 >= len(*s) {
		*s = append(*s, 0)
	}
	(*s)[i/64] |= 1 << (i % 64)
}

func (s set) has(i int) bool { return i/64 < len(s) && s[i/64]>>(i%64)&1 == 1 }
