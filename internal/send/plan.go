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

// makePlan reads the list once, to count; the batches are cut by a second reading,
// so that a list of any length needs the memory of a few batches.
func (t *task) makePlan(ctx context.Context) error {
	p := &t.plan
	err := t.walk(ctx, func(address string) bool {
		if p.recipients++; p.recipients <= p.size {
			p.only = append(p.only, address)
		}
		return true
	}, func(text, reason string) {
		if p.faults++; p.faults <= messages.ListedInvalid {
			p.invalid = append(p.invalid, messages.InvalidAddress{Address: text, Reason: reason})
		}
	}, func() { p.duplicates++ })
	if err != nil {
		return err
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

// cut gives the batches in order.
func (t *task) cut(ctx context.Context) iter.Seq2[batch, error] {
	return func(yield func(batch, error) bool) {
		next := batch{number: 1, to: make([]string, 0, t.plan.size)}
		going := true
		err := t.walk(ctx, func(address string) bool {
			next.to = append(next.to, address)
			if len(next.to) == t.plan.size {
				going = yield(next, nil)
				next = batch{number: next.number + 1, first: next.first + len(next.to), to: make([]string, 0, t.plan.size)}
			}
			return going
		}, func(string, string) {}, func() {})
		switch {
		case err != nil && going:
			yield(batch{}, err)
		case going && len(next.to) > 0:
			yield(next, nil)
		}
	}
}

// walk reads the recipients in order and tells each one's lot: valid, invalid, or a
// duplicate of one before. It ends early when valid says so.
func (t *task) walk(ctx context.Context, valid func(string) bool, invalid func(text, reason string), duplicate func()) error {
	seen := map[[16]byte]struct{}{}
	each := func(text string) bool {
		address, err := messages.ParseRecipient(text)
		if err != nil {
			invalid(text, err.Error())
			return true
		}
		key := messages.RecipientKey(address)
		if _, ok := seen[key]; ok {
			duplicate()
			return true
		}
		seen[key] = struct{}{}
		return valid(address)
	}
	if t.Body.ToObject == nil {
		for text := range t.Body.Addresses() {
			if !each(text) {
				return nil
			}
		}
		return nil
	}
	object, err := t.Open(ctx, *t.Body.ToObject)
	if errors.Is(err, fs.ErrNotExist) {
		return &unfit{"to_object", "names no object with that digest"}
	}
	if err != nil {
		return fmt.Errorf("send: open the recipient list: %w", err)
	}
	defer object.Close()
	for text, err := range messages.Lines(object) {
		if err != nil {
			return fmt.Errorf("send: read the recipient list: %w", err)
		}
		if !each(text) {
			return nil
		}
	}
	return nil
}
