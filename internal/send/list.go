package send

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"

	"errand/pkg/messages"
)

// invalidError is a request that no repetition would mend.
type invalidError struct{ field, rule string }

func (e *invalidError) Error() string { return e.field + " " + e.rule }

// makePlan plans the request's list. One that was begun is within the limit of its time,
// whatever the limit is now.
func (m *message) makePlan(ctx context.Context, begun bool) (plan, error) {
	limit := m.MaxRecipients
	if begun {
		limit = 0
	}
	p, err := m.planner.plan(ctx, func() iter.Seq2[string, error] { return m.texts(ctx) }, m.size, limit)
	if fault, ok := errors.AsType[listFault](err); ok {
		field := "to"
		if m.request.Body.ToObject != nil {
			field = "to_object"
		}
		return p, &invalidError{field, string(fault)}
	}
	return p, err
}

// texts reads the recipients in order, as they were written. An error comes last.
func (m *message) texts(ctx context.Context) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if m.request.Body.ToObject == nil {
			for text := range m.request.Body.Addresses() {
				if !yield(text, nil) {
					return
				}
			}
			return
		}
		object, err := m.Open(ctx, *m.request.Body.ToObject)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			yield("", &invalidError{"to_object", "names no object with that digest"})
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
