package transactions

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"hash/maphash"
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

	identity string
	by       messages.TransactionBy // how it was found; "" means in the list
	names    []string               // order numbers that its request may have, the mandate's first
}

// Kinds of records, as events name them.
var kinds = map[messages.Operation]messages.TransactionKind{
	messages.Application: messages.ApplicationKind, messages.Deduction: messages.DeductionKind}

// read reads a record; what cannot be read is left out. One without an id, or not an object, is known by its bytes.
func read(raw json.RawMessage, times *mandates.Times) Record {
	r := mandates.ReadRecord(raw)
	out := Record{Kind: messages.Application, Raw: raw, identity: cmp.Or(r.ID, string(raw)), At: timeOf(r.CreatedAt, times),
		Status:        cmp.Or(messages.StatusToken(r.Description, json.Number(r.Status)), messages.Unknown),
		MandateStatus: messages.StatusToken(r.MandateDescription, json.Number(r.MandateStatus)), Order: cmp.Or(r.MandateOrder, r.Order)}
	if r.Deduction() {
		out.Kind = messages.Deduction
	}
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

// id names a state of the record: the first 16 bytes of the SHA-256 of its kind, its identity and the state.
func (r Record) id(status messages.State) sweep.ID {
	sum := sha256.Sum256([]byte(string(r.Kind) + "\x00" + r.identity + "\x00" + string(status)))
	return sweep.ID(sum[:16])
}

var seed = maphash.MakeSeed()

// key names the record whatever its state, within this process.
func (r Record) key() uint64 { return maphash.String(seed, string(r.Kind)+"\x00"+r.identity) }

// maxRecord is the maximum size of a record in an event: one that is too large must not stop the others.
const maxRecord = 64 << 10

func (r Record) event(match messages.TransactionMatch, now time.Time, withoutPayer bool) messages.Event {
	id, request, raw := r.id(r.Status), messages.Unmatched, r.Raw
	b := &messages.TransactionBody{Common: messages.Common{At: messages.Time{Time: now}}, EventID: hex.EncodeToString(id[:]),
		Kind: kinds[r.Kind], Status: string(r.Status),
		MandateStatus: string(r.MandateStatus), OrderNumber: r.Order, Match: match, By: cmp.Or(r.by, messages.ByList)}
	if match.Confidence == messages.MatchExact {
		request = match.Candidates[0]
		b.RequestID, b.Match.Candidates = request, nil
	}
	if withoutPayer || len(raw) > maxRecord {
		raw = messages.WithoutPayer(raw)
	}
	if b.Transaction = raw; len(raw) > maxRecord || !bytes.HasPrefix(raw, []byte("{")) || !json.Valid(raw) {
		b.Transaction = json.RawMessage("{}")
	}
	return messages.Event{Operation: r.Kind, State: r.Status, ID: request, Body: b}
}
