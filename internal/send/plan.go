package send

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"

	"errand/pkg/messages"
)

// plan is how a request's recipients are cut; the same request and size always
// give the same plan.
type plan struct {
	size       int
	recipients int // valid and distinct
	batches    int
	duplicates int
	invalid    []messages.InvalidAddress // the first hundred
	faults     int                       // all of them
	only       []string                  // the recipients, where one batch holds them all
	out        set                       // which texts are none: those that are invalid or duplicates
}

// batch is one call's share of the recipients.
type batch struct {
	number int // from 1
	first  int // index into the recipients, from 0
	to     []string
}

// unfit is a request that no repetition would mend.
type unfit struct{ field, rule string }

func (e *unfit) Error() string { return e.field + " " + e.rule }

// invalid gives the faults of a request that no repetition would mend, else nil.
func invalid(err error) *messages.Invalid {
	if u, ok := errors.AsType[*unfit](err); ok {
		return &messages.Invalid{Fields: map[string][]string{u.field: {u.rule}}}
	}
	return nil
}

// known is how many recipients a reading of the list has in memory to know their
// duplicates by, 16 bytes each and the table around them.
const known = 100_000

// makePlan reads the list to count and to find the duplicates: once for every known
// recipients, each reading comparing that many with all that follow. The batches are
// cut by one more reading. So a list of any length needs the memory of a short one.
func (t *task) makePlan(ctx context.Context) error {
	p := &t.plan
	seen := map[[16]byte]struct{}{}
	for from, more := 0, true; more; {
		var next, i int
		more = false
		for text, err := range t.texts(ctx) {
			if err != nil {
				return err
			}
			if i >= from && !p.out.has(i) && !p.note(i, text, seen) && !more {
				next, more = i, true
			}
			i++
		}
		clear(seen)
		from = next
	}
	p.batches = (p.recipients + p.size - 1) / p.size
	if p.recipients == 0 {
		field := "to"
		if t.Body.ToObject != nil {
			field = "to_object"
		}
		return &unfit{field, "holds no valid address"}
	}
	if p.batches > 1 {
		p.only = nil
	}
	return nil
}

// note tells the lot of the i-th text: a recipient, invalid, or a duplicate of one that
// was seen. It reports false for one that is not known to be new while seen is full.
func (p *plan) note(i int, text string, seen map[[16]byte]struct{}) bool {
	address, err := messages.ParseRecipient(text)
	if err != nil {
		p.out.add(i)
		if p.faults++; p.faults <= messages.ListedInvalid {
			p.invalid = append(p.invalid, messages.InvalidAddress{Address: text, Reason: err.Error()})
		}
		return true
	}
	key := messages.RecipientKey(address)
	if _, ok := seen[key]; ok {
		p.out.add(i)
		p.duplicates++
		return true
	}
	if len(seen) == known {
		return false
	}
	seen[key] = struct{}{}
	if p.recipients++; p.recipients <= p.size {
		p.only = append(p.only, address)
	}
	return true
}

// cut gives the batches in order.
func (t *task) cut(ctx context.Context) iter.Seq2[batch, error] {
	return func(yield func(batch, error) bool) {
		next := batch{number: 1, to: make([]string, 0, t.plan.size)}
		i := -1
		for text, err := range t.texts(ctx) {
			if i++; err == nil && t.plan.out.has(i) {
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
			if len(next.to) == t.plan.size {
				if !yield(next, nil) {
					return
				}
				next = batch{number: next.number + 1, first: next.first + len(next.to), to: make([]string, 0, t.plan.size)}
			}
		}
		if len(next.to) > 0 {
			yield(next, nil)
		}
	}
}

// texts reads the recipients in order, as they were written. An error comes last.
func (t *task) texts(ctx context.Context) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if t.Body.ToObject == nil {
			for text := range t.Body.Addresses() {
				if !yield(text, nil) {
					return
				}
			}
			return
		}
		object, err := t.Open(ctx, *t.Body.ToObject)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			yield("", &unfit{"to_object", "names no object with that digest"})
			return
		case err != nil:
			yield("", fmt.Errorf("send: open the recipient list: %w", err))
			return
		}
		defer object.Close()
		for text, err := range messages.Lines(object) {
			if err != nil {
				err = fmt.Errorf("send: read the recipient list: %w", err)
			}
			if !yield(text, err) {
				return
			}
		}
	}
}

// set is a set of small numbers, a bit each.
type set []uint64

func (s *set) add(i int) {
	for i/64 >= len(*s) {
		*s = append(*s, 0)
	}
	(*s)[i/64] |= 1 << (i % 64)
}

func (s set) has(i int) bool { return i/64 < len(s) && s[i/64]>>(i%64)&1 == 1 }
