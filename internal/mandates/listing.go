// Package mandates knows what the transaction list shows of an order number, proves of a call, and when to look again.
//
//	event ─► FollowUp: Look at each age ─┐
//	call of unknown fate ────────────────┴─► List.Prove ─► Listing ─► Proof
//	                                                         └─ ReadRecord ─► Decided
//
//	listing.go   the records of an order number, and what one says
//	proof.go     what the list proves of a call
//	times.go     the list's times, whose offset from UTC is learned
//	followup.go  looks at growing ages; it remembers one place in the stream for each age, and no request
//
// What a status or a missing record means is decided here alone; callers add what they do about it.
package mandates

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"

	"errand/internal/retry"
	"errand/pkg/clients/mandate"
	"errand/pkg/messages"
)

// Listing is what the transaction list shows under an order number.
type Listing struct {
	Records []json.RawMessage
	Flaw    string // why the absence of a record proves nothing; "" if it does
	Early   bool   // it will, once the list has settled
	Cut     bool   // there may be more than was read, or the list shows fewer than it counts
}

const (
	// maxPages bounds a look at a list that is not narrowed to the order number.
	maxPages = 40
	// maxEvidence is how many bytes of records are kept, if there is more than one: an uncertain event carries no more.
	maxEvidence = 256 << 10
)

const notNarrowed = "it is not narrowed to the order number"

// Read reads some pages of the list under a filter's order number. stop, maybe nil, ends the waits between tries.
func Read(ctx context.Context, stop <-chan struct{}, c *mandate.Client, p retry.Policy, filter mandate.Filter, pages int) (Listing, error) {
	return retry.Read(ctx, stop, p, func(ctx context.Context) (found Listing, err error) {
		size, read, total, missing := 0, 0, 0, false
		for page, err := range c.Transactions(ctx, filter, 1) {
			if err != nil {
				return Listing{}, err
			}
			read, total, missing = read+len(page.Records), max(total, page.Total), page.Linked || page.LastPage > page.Number
			for _, record := range page.Records {
				if !about(record, filter.OrderNumber) { // an upstream that ignores the filter proves nothing
					found.Flaw = notNarrowed
					continue
				}
				if size += len(record); size <= maxEvidence || len(found.Records) == 0 {
					found.Records = append(found.Records, record)
				}
			}
			if size >= maxEvidence || page.Number >= pages && page.More {
				found.Cut = true
				break
			}
		}
		if found.Cut = found.Cut || missing || read < total; found.Cut && found.Flaw == "" {
			found.Flaw = "it is cut, or shows fewer records than it counts"
		}
		return found, nil
	})
}

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
