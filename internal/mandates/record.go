package mandates

import (
	"bytes"
	"encoding/json"
	"strings"

	"errand/pkg/messages"
)

// Record is what a record of the transaction list says, each as a text without the space around
// it. What the record lacks, or has as neither a text nor a number, is "".
type Record struct {
	ID, Type, CreatedAt, Order, Status, Description string

	MandateOrder, MandateStatus, MandateDescription string // of the mandate within it
}

// ReadRecord reads a record; what cannot be read of it is left out.
func ReadRecord(raw json.RawMessage) Record {
	var r struct {
		ID          any `json:"id"`
		Type        any `json:"transaction_type"`
		CreatedAt   any `json:"created_at"`
		Order       any `json:"order_number"`
		Status      any `json:"status"`
		Description any `json:"status_description"`
		Mandate     any `json:"mandate"`
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	_ = d.Decode(&r) // what cannot be read has no fields
	mandate, _ := r.Mandate.(map[string]any)
	return Record{ID: text(r.ID), Type: text(r.Type), CreatedAt: text(r.CreatedAt), Order: text(r.Order), Status: text(r.Status), Description: text(r.Description),
		MandateOrder: text(mandate["order_number"]), MandateStatus: text(mandate["status"]), MandateDescription: text(mandate["status_description"])}
}

// text is a string without the space around it, or a number as it is written; "" of anything else.
func text(v any) string {
	switch v := v.(type) {
	case string:
		return strings.TrimSpace(v)
	case json.Number:
		return v.String()
	}
	return ""
}

// Deduction reports whether the record is of a deduction; else it is of an application.
func (r Record) Deduction() bool { return strings.EqualFold(r.Type, "Deduction") }

// Decided is what the status says became of it: succeeded, failed, or "" while it may become
// either. The codes but 3 are not shown by the upstream; assumed, see
// docs/why/adr/0004-sandbox-assumptions.md. One that is not known is neither, so that it is never
// taken for the end of a mandate.
func (r Record) Decided() messages.State {
	switch r.Status {
	case "3":
		return messages.Succeeded
	case "2", "4", "5": // failed, cancelled, expired
		return messages.Failed
	}
	return ""
}

// about reports whether a record is of an order number, its own or its mandate's. See Fold.
func about(record json.RawMessage, order string) bool {
	r, same := ReadRecord(record), func(listed string) bool { return listed != "" && Fold(listed) == Fold(order) }
	return same(r.Order) || same(r.MandateOrder)
}

// Fold leaves out what does not distinguish two order numbers: who stores them may have
// changed case and spaces.
func Fold(order string) string {
	return strings.ToLower(strings.Join(strings.Fields(order), ""))
}
