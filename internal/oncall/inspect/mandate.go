package inspect

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"errand/internal/bus"
	"errand/pkg/messages"
)

func (r Reader) mandate(ctx context.Context, s *Story) error {
	for _, about := range []messages.Operation{messages.Application, messages.Deduction, messages.Callback} {
		if err := r.read(ctx, s, bus.EventsOf(about), about.Filter(s.RequestID), &s.Mandate); err != nil {
			return err
		}
	}
	s.Mandate = slices.DeleteFunc(s.Mandate, func(e Event) bool { return messages.StateOf(e.Subject) == messages.Erased })
	slices.SortFunc(s.Mandate, func(a, b Event) int {
		return cmp.Or(a.Time.Compare(b.Time.Time), cmp.Compare(a.Sequence, b.Sequence))
	})
	for i, e := range s.Mandate {
		s.Mandate[i].Body = withoutPayer(e)
	}
	return nil
}

// withoutPayer is the body of an event about a mandate without what it has of the payer: of a
// callback without what was sent.
func withoutPayer(e Event) any {
	var body map[string]json.RawMessage
	if json.Unmarshal(e.Message.Data, &body) != nil {
		return fmt.Sprintf("%d bytes", len(e.Message.Data))
	}
	delete(body, "query")
	delete(body, "body")
	if record, there := body["transaction"]; there {
		body["transaction"] = messages.WithoutPayer(record)
	}
	return body
}
