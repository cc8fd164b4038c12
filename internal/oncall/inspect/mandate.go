package inspect

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"errand/internal/bus"
	"errand/internal/mandates"
	"errand/pkg/messages"
)

// mandate adds what became of the mandate of an enrollment.
func (r Reader) mandate(ctx context.Context, s *Story) error {
	for _, about := range []messages.Operation{messages.Application, messages.Deduction, messages.Callback} {
		if err := r.read(ctx, s, bus.MandateEvents, about.Filter(s.RequestID), &s.Mandate); err != nil {
			return err
		}
	}
	s.Mandate = slices.DeleteFunc(s.Mandate, func(e Event) bool { return messages.StateOf(e.Subject) == messages.Erased })
	slices.SortFunc(s.Mandate, func(a, b Event) int { return cmp.Compare(a.Sequence, b.Sequence) })
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

// records searches the transaction list for an order number: records that no request is sure to be
// meant by, and deductions with one of their own. Case and spaces do not count, as where they are matched.
func (r Reader) records(ctx context.Context, word string, since time.Time, h *hits, into *Finding) error {
	word = mandates.Fold(word)
	for _, filter := range []string{messages.Application.Filter(messages.Unmatched), messages.Deduction.Filter("*")} {
		err := bus.Scan{Stream: bus.MandateEvents, Filter: filter, Since: since}.Each(ctx, r.Conn, func(m bus.Message) bool {
			var b struct {
				RequestID   string `json:"request_id"` // "": of none
				OrderNumber string `json:"order_number"`
				Transaction struct {
					OrderNumber string `json:"order_number"`
				} `json:"transaction"`
			}
			_ = json.Unmarshal(m.Data, &b) // what could be read before the fault is there
			own, mandates := mandates.Fold(b.Transaction.OrderNumber) == word, mandates.Fold(b.OrderNumber) == word
			switch {
			case b.RequestID != "" && own && !mandates:
				h.add(Found{RequestID: b.RequestID, Operation: messages.Enroll, As: "order number of a deduction"})
			case b.RequestID == "" && (own || mandates):
				e := eventOf(m)
				e.Body = withoutPayer(e)
				into.Records = append(into.Records, e)
			}
			return true
		})
		if err != nil {
			return err
		}
	}
	return nil
}
