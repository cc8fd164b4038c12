// Package mandates knows what the transaction list shows of an order number, proves of a call, and when to look again.
//
//	event ─► FollowUp: Look at each age ─┐
//	call of unknown fate ────────────────┴─► List.Prove ─► Listing ─► Proof
//	                                                         └─ ReadRecord ─► Decided
//
//	list.go      the records of an order number, what one says, and what the list proves of a call
//	times.go     the list's times, whose offset from UTC is learned
//	followup.go  looks at growing ages; it remembers one place in the stream for each age, and no request
//
// What a status or a missing record means is decided here alone; callers add what they do about it.
package mandates

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"errand/internal/retry"
	"errand/internal/wire"
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
	// maxEvidence is how many bytes of records are kept, if there is more than one record: more would not fit an uncertain event.
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

// State is the status as it is in subjects, "" where the record has none.
func (r Record) State() messages.State { return statusToken(r.Description, r.Status) }

// MandateState is State of the mandate.
func (r Record) MandateState() messages.State {
	return statusToken(r.MandateDescription, r.MandateStatus)
}

// maxStatus is the maximum length of a status in a subject.
const maxStatus = 64

// statusToken is a status of a transaction or mandate as it is in subjects: its description in lower case with _ in place of anything
// but letters and digits of ASCII, or status_<code> where it has none; "" where it has neither. One that would be messages.Erased,
// which is not a status of a record, is status_erased.
func statusToken(description, code string) messages.State {
	words := strings.FieldsFunc(strings.ToLower(description), func(r rune) bool { return r >= 0x80 || !wire.IsAlnum(byte(r)) })
	switch token := strings.Join(words, "_"); {
	case messages.State(token) == messages.Erased:
		return "status_erased"
	case token != "":
		return messages.State(strings.TrimSuffix(token[:min(len(token), maxStatus)], "_"))
	case code != "" && len(code) < maxStatus && strings.Trim(code, "0123456789") == "":
		return messages.State("status_" + code)
	}
	return ""
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
	return wire.SameOrder(r.Order, order) || wire.SameOrder(r.MandateOrder, order)
}

// Proof is what a listing proves of a call.
type Proof int

// The proofs.
const (
	Nothing Proof = iota
	Listed
	NotListed
)

// Proof returns what the listing proves of a call for its order number.
func (l Listing) Proof() Proof {
	switch {
	case len(l.Records) > 0:
		return Listed
	case l.Flaw != "":
		return Nothing
	}
	return NotListed
}

// List is the transaction list, which is asked what became of calls.
type List struct {
	Client *mandate.Client
	Policy retry.Policy
	Stop   <-chan struct{} // ends the waits between tries; may be nil
	Settle time.Duration   // by then the list shows what was enrolled
	Times  *Times
}

// Call is a call of unknown fate, or all that were made for a request.
type Call struct {
	Order    string
	Redact   string    // a secret of its request, removed from what is listed
	Began    time.Time // records from before it are of an earlier enrollment; zero if every record counts
	Ended    time.Time // when it was over at the latest
	Answered bool      // it was over then for certain: the service itself answered
}

// Look reads what the list shows under a call's order number.
func (l *List) Look(ctx context.Context, c Call) (Listing, error) {
	filter := mandate.Filter{OrderNumber: c.Order, Redact: c.Redact}
	found, err := Read(ctx, l.Stop, l.Client, l.Policy, filter, maxPages)
	if err != nil || c.Began.IsZero() || len(found.Records) == 0 {
		return found, err
	}
	l.Times.Learn(ctx)
	return found.since(c.Began, l.Times), nil
}

// Prove reads the list to prove whether a call was taken. It was not if its order number is missing in a list that is whole, narrowed,
// not empty without the filter, and younger than the call: Settle has passed since, or it shows a record that was made later.
func (l *List) Prove(ctx context.Context, c Call) (Listing, error) {
	settled := time.Since(c.Ended) >= l.Settle
	var newest mandate.Page
	if settled || c.Answered { // read first: what it shows, the narrowed list shows as well
		var err error
		if newest, err = l.newest(ctx, c.Redact); err != nil {
			return Listing{}, err
		}
	}
	if !settled && c.Answered {
		l.Times.Learn(ctx)
	}
	found, err := l.Look(ctx, c)
	if err != nil || found.Proof() != NotListed {
		return found, err
	}
	younger := settled
	for _, record := range newest.Records {
		r := ReadRecord(record)
		if about(record, c.Order) && !l.Times.before(r.CreatedAt, c.Began) {
			found.Records = append(found.Records, record)
		}
		wrong := l.Times.after(r.CreatedAt, time.Now()) // or the zone is: it may be older
		younger = younger || !wrong && l.Times.after(r.CreatedAt, c.Ended)
	}
	switch {
	case !younger:
		found.Flaw, found.Early = "it may not show it yet", true
	case len(newest.Records) == 0: // it may be hidden from this token
		found.Flaw = "it shows nothing at all"
	}
	return found, nil
}

// newest reads the list's first page as it is without a filter.
func (l *List) newest(ctx context.Context, redact string) (mandate.Page, error) {
	return retry.Read(ctx, l.Stop, l.Policy, func(ctx context.Context) (mandate.Page, error) {
		return l.Client.TransactionsPage(ctx, mandate.Filter{Redact: redact}, 1, nil)
	})
}

// since leaves out records from before a time. Beside them the absence of one proves nothing.
func (l Listing) since(began time.Time, times *Times) Listing {
	all := len(l.Records)
	l.Records = slices.DeleteFunc(l.Records, func(record json.RawMessage) bool { return times.before(ReadRecord(record).CreatedAt, began) })
	if len(l.Records) < all {
		l.Flaw = notNarrowed
	}
	return l
}
