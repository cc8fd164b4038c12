package transactions

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"encoding/json"
	"strings"
	"time"

	"errand/internal/lists/sweep"
	"errand/internal/mandates"
	"errand/pkg/messages"
)

// Record is a record of the transaction list.
type Record struct {
	Kind          messages.Operation // Application or Deduction
	Status        messages.State
	MandateStatus messages.State
	Order         string    // of the mandate; of the record, where that has none
	At            time.Time // when it was made; zero if unknown
	Raw           json.RawMessage

	key    uint64                 // names the record in every process
	state  uint64                 // hash of the record and its state, of which ids have 6 bytes
	before uint64                 // the last state before this one, or this one: see states
	by     messages.TransactionBy // how it was found; "" means in the list
	kind   string                 // as the service names it, in lower case
	names  []string               // order numbers that its request may have, the mandate's first
}

// Kinds of records, as events name them.
var kinds = map[messages.Operation]messages.TransactionKind{
	messages.Application: messages.ApplicationKind, messages.Deduction: messages.DeductionKind}

// read reads a record; what cannot be read is left out. One without an id, or not an object, is known by its bytes. Its state is
// the codes of transaction and mandate, or their wording where they have none: labels may be changed or translated. A deduction
// does not change when its mandate does.
func read(raw json.RawMessage, times *mandates.Times) Record {
	r := mandates.ReadRecord(raw)
	out := Record{Kind: messages.Application, Raw: raw, At: timeOf(r.CreatedAt, times), kind: strings.ToLower(r.Type),
		Status:        cmp.Or(messages.StatusToken(r.Description, json.Number(r.Status)), messages.Unknown),
		MandateStatus: messages.StatusToken(r.MandateDescription, json.Number(r.MandateStatus)), Order: cmp.Or(r.MandateOrder, r.Order)}
	mandate := cmp.Or(r.MandateStatus, string(out.MandateStatus))
	if r.Deduction() {
		out.Kind, mandate = messages.Deduction, ""
	}
	name := string(out.Kind) + "\x00" + cmp.Or(r.ID, string(raw))
	out.key = hash(name)
	out.state = hash(name + "\x00" + cmp.Or(r.Status, string(out.Status)) + "\x00" + mandate)
	if r.MandateOrder != "" {
		out.names = append(out.names, r.MandateOrder)
	}
	if r.Order != "" && out.Kind == messages.Application && fold(r.Order) != fold(r.MandateOrder) { // a deduction's own number may be anything
		out.names = append(out.names, r.Order)
	}
	return out
}

// timeOf is when a record was made. A future time counts as unknown: the record would be new for ever.
func timeOf(text string, times *mandates.Times) time.Time {
	if at, ok := times.At(text); ok && at.Before(time.Now().Add(24*time.Hour)) {
		return at
	}
	return time.Time{}
}

func (r Record) event(id sweep.ID, match messages.TransactionMatch, now time.Time, withoutPayer bool) messages.Event {
	request, raw := messages.Unmatched, r.Raw
	b := &messages.TransactionBody{Common: messages.Common{At: messages.Time{Time: now}}, EventID: hex.EncodeToString(id[:]),
		Kind: kinds[r.Kind], Status: string(r.Status),
		MandateStatus: string(r.MandateStatus), OrderNumber: r.Order, Match: match, By: cmp.Or(r.by, messages.ByList)}
	if match.Confidence == messages.MatchExact {
		request = match.Candidates[0]
		b.RequestID, b.Match.Candidates = request, nil
	}
	if withoutPayer {
		raw = messages.WithoutPayer(raw)
	}
	if b.Transaction = raw; !bytes.HasPrefix(raw, []byte("{")) || !json.Valid(raw) {
		b.Transaction = json.RawMessage("{}")
	}
	return messages.Event{Operation: r.Kind, State: r.Status, ID: request, Body: b}
}
