package send

import (
	"fmt"
	"hash/maphash"
	"iter"

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
}

// batch is one call's share of the recipients.
type batch struct {
	number int // from 1
	first  int // index into the recipients, from 0
	to     []string
}

// maxKept is how many recipients of several batches are kept until they are sent. Longer lists are read again.
const maxKept = 4000

// listFault is a rule that a list breaks, whenever it is read.
type listFault string

func (f listFault) Error() string { return "send: the recipient list " + string(f) }

// memory is how much of a list is kept while its duplicates are looked for.
type memory struct {
	maxExact    int // recipients that are compared exactly, at least a batch: such a list is read once
	maxSuspects int // recipients that are settled in one further reading
	blocks      int // of the filter's first part, 64 bytes each
	perBlock    int // recipients of the filter, for each block
}

// usual is what plans have. The filter has parts of 0.5, 1, 2 and 4 MiB, and mistakes less than one in a hundred
// of five million recipients: of an ordinary list, all suspects fit.
var usual = memory{maxExact: 100_000, maxSuspects: 200_000, blocks: 512 << 10 / 64, perBlock: 36}

// plan finds the invalid recipients and the duplicates of a list and counts what
// is left, reading the list from its beginning with each call of texts:
//
//	up to 100,000 recipients   once, compared exactly
//	more                       once with a filter, which knows for certain that a
//	                           recipient is new, but not that it is a duplicate;
//	                           then once for every 200,000 suspects
//
// about is an estimate of how many texts the list has, 0 if that is unknown. A list with more
// recipients than limit, or with more than twice as many texts, is refused; 0 means no limit.
//
// Errors: a listFault, which no repetition mends, or the list's error. With the fault that there is no recipient at all,
// the plan says what there is instead.
func (m memory) plan(texts func() iter.Seq2[string, error], about, size, limit int) (plan, error) {
	c := comparison{plan: plan{size: size, kept: make([]string, 0, min(about, max(size, maxKept)))}, memory: m, limit: limit,
		exact: make(map[recipient]struct{}, min(about, m.maxExact))}
	err := c.compare(texts)
	switch {
	case err != nil:
		return plan{}, err
	case c.recipients == 0:
		return c.plan, listFault("holds no valid address")
	}
	c.batches = (c.recipients + size - 1) / size
	if len(c.kept) < c.recipients {
		c.kept = nil
	}
	return c.plan, nil
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

func recipientOf(address string) recipient {
	var buf [256]byte // longer than most
	text := messages.AppendRecipient(buf[:0], address)
	return recipient{maphash.Bytes(seeds[0], text), maphash.Bytes(seeds[1], text)}
}

// comparison is a plan while its list is compared with itself.
type comparison struct {
	plan
	memory   memory
	limit    int
	exact    map[recipient]struct{} // all recipients so far; nil once the list is long
	filter   *filter                // all recipients so far of a long list
	doubtful set                    // texts that the filter takes for duplicates, a few of them wrongly
	suspects map[recipient]bool     // recipients of doubtful texts, for the next reading: whether they were met there
	rest     int                    // the first doubtful text that suspects had no room for; 0 if it had room
}

// compare reads the list until each text is known to be a recipient, invalid or a duplicate.
func (c *comparison) compare(texts func() iter.Seq2[string, error]) error {
	c.suspects = map[recipient]bool{}
	err := c.read(texts(), c.meet)
	for c.filter = nil; err == nil && len(c.suspects) > 0; {
		err = c.read(texts(), c.settle())
	}
	return err
}

// read calls each with the recipients that are neither invalid nor known to be duplicates.
func (c *comparison) read(texts iter.Seq2[string, error], each func(i int, r recipient, address string) error) error {
	i := -1
	for text, err := range texts {
		if i++; err != nil {
			return err
		}
		if c.limit > 0 && i >= 2*c.limit {
			return listFault(fmt.Sprintf("holds more than %d addresses, with duplicates and invalid ones", 2*c.limit))
		}
		if c.out.has(i) {
			continue
		}
		address, err := messages.ParseRecipient(text)
		if err != nil {
			c.out.add(i)
			if c.faults++; c.faults <= messages.ListedInvalid {
				c.invalid = append(c.invalid, messages.InvalidAddress{Address: text, Reason: err.Error()})
			}
			continue
		}
		if err := each(i, recipientOf(address), address); err != nil {
			return err
		}
		if c.limit > 0 && c.recipients > c.limit {
			return listFault(fmt.Sprintf("holds more than %d recipients", c.limit))
		}
	}
	return nil
}

// meet compares the i-th text with those before it, in the first reading.
func (c *comparison) meet(i int, r recipient, address string) error {
	if c.exact != nil {
		if _, ok := c.exact[r]; ok {
			c.duplicate(i)
			return nil
		}
		if len(c.exact) < c.memory.maxExact {
			c.exact[r] = struct{}{}
			if c.recipients++; c.recipients <= max(c.size, maxKept) {
				c.kept = append(c.kept, address)
			}
			return nil
		}
		c.filter = newFilter(c.memory.blocks, c.memory.perBlock)
		for before := range c.exact {
			c.filter.add(before)
		}
		c.exact = nil
	}
	if c.filter.add(r) {
		c.recipients++
		return nil
	}
	c.doubtful.add(i)
	c.suspect(i, r)
	return nil
}

// suspect keeps a recipient that may have a duplicate for the next reading.
func (c *comparison) suspect(i int, r recipient) {
	if _, ok := c.suspects[r]; !ok && len(c.suspects) < c.memory.maxSuspects {
		c.suspects[r] = false
	} else if !ok && c.rest == 0 {
		c.rest = i
	}
}

// settle finds out which text of each suspect is the first and which are duplicates, and gathers suspects among the rest.
func (c *comparison) settle() func(i int, r recipient, _ string) error {
	settled, rest := c.suspects, c.rest
	c.suspects, c.rest = map[recipient]bool{}, 0
	return func(i int, r recipient, _ string) error {
		switch met, suspected := settled[r]; {
		case met:
			c.duplicate(i)
		case suspected:
			settled[r] = true
			if c.doubtful.has(i) { // otherwise it was counted when it was met
				c.recipients++
			}
		case rest > 0 && i >= rest && c.doubtful.has(i):
			c.suspect(i, r)
		}
		return nil
	}
}

func (c *comparison) duplicate(i int) {
	c.out.add(i)
	c.duplicates++
}
