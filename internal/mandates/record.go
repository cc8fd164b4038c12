package mandates

import (
	"bytes"
	"encoding/json"
	"strings"

	"errand/pkg/messages"
)

// Record is what a record of the transaction list says, trimmed; "" where a field is missing, or not a text or number.
type Record struct {
	ID, Type, CreatedAt, Order, Status, Description string

	MandateOrder, MandateStatus, MandateDescription string // of the mandate within it
}

// ReadRecord reads a record, as far as it can be read.
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
	_ = d.Decode(&r) // what cannot be read stays empty
	mandate, _ := r.Mandate.(map[string]any)
	return Record{ID: text(r.ID), Type: text(r.Type), CreatedAt: text(r.CreatedAt), Order: text(r.Order),
		Status: text(r.Status), Description: text(r.Description), MandateOrder: text(mandate["order_number"]),
		MandateStatus: text(mandate["status"]), MandateDescription: text(mandate["status_description"])}
}

// text returns a string, trimmed, or a number as it is written; "" for anything else.
func text(v any) string {
	switch v := v.(type) {
	case string:
		return strings.TrimSpace(v)
	case json.Number:
		return v.String()
	}
	return ""
}

// Deduction reports whether the record is a deduction; otherwise it is an application.
func (r Record) Deduction() bool { return strings.EqualFold(r.Type, "Deduction") }

// Decided returns what the status says became of the mandate: succeeded, failed, or "" while it may
// become either. Codes other than 3 are not shown by the upstream; assumed, see
// docs/why/adr/0004-sandbox-assumptions.md. An unknown code decides nothing.
func (r Record) Decided() messages.State {
	switch r.Status {
	case "3":
		return messages.Succeeded
	case "2", "4", "5": // failed, cancelled, expired
		return messages.Failed
	}
	return ""
}

// about reports whether a record, or its mandate, has an order number.
func about(record json.RawMessage, order string) bool {
	r := ReadRecord(record)
	return messages.SameOrder(r.Order, order) || messages.SameOrder(r.MandateOrder, order)
}
