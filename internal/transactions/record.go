package transactions

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"hash/maphash"
	"strings"
	"time"

	"errand/internal/sweep"
	"errand/pkg/messages"
)

// Record is a record of the transaction list.
type Record struct {
	Kind          messages.Operation // Application or Deduction
	Status        messages.State
	MandateStatus messages.State
	Order         string    // of the mandate; of the record, where that has none
	At            time.Time // when it was made; zero: not known
	Raw           json.RawMessage

	identity string
	final    bool                   // it is decided, as far as is known
	by       messages.TransactionBy // how it was found; "": in the list
	names    []string               // order numbers that its request may have, that of the mandate first
}

// Kinds of records, as events name them.
var kinds = map[messages.Operation]messages.TransactionKind{messages.Application: messages.ApplicationKind, messages.Deduction: messages.DeductionKind}

// Statuses of records that are decided. The codes but 3 are not shown by the upstream; assumed,
// see docs/adr/0004-sandbox-assumptions.md. One that is not known may still change.
var decided = map[json.Number]bool{"2": true, "3": true, "4": true, "5": true}

// read reads a record; what cannot be read of it is left out. A record without an id, or one
// that is no object, is known by its bytes.
func read(raw json.RawMessage, zone *time.Location) Record {
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
	out := Record{Kind: messages.Application, Raw: raw, identity: text(r.ID), At: timeOf(text(r.CreatedAt), zone), final: decided[json.Number(text(r.Status))],
		Status: messages.StatusToken(text(r.Description), json.Number(text(r.Status))), MandateStatus: messages.StatusToken(text(mandate["status_description"]), json.Number(text(mandate["status"])))}
	if out.identity == "" {
		out.identity = string(raw)
	}
	if out.Status == "" {
		out.Status = messages.Unknown
	}
	if strings.EqualFold(text(r.Type), "Deduction") {
		out.Kind = messages.Deduction
	}
	own, ofMandate := text(r.Order), text(mandate["order_number"])
	out.Order = cmp.Or(ofMandate, own)
	if ofMandate != "" {
		out.names = append(out.names, ofMandate)
	}
	if own != "" && out.Kind == messages.Application && fold(own) != fold(ofMandate) { // a deduction's own number may be anything
		out.names = append(out.names, own)
	}
	return out
}

// timeOf is when a record was made. One of the future is not known: it would be new for ever.
func timeOf(text string, zone *time.Location) time.Time {
	for _, layout := range []string{time.DateTime, time.RFC3339} {
		if at, err := time.ParseInLocation(layout, text, zone); err == nil && at.Before(time.Now().Add(24*time.Hour)) {
			return at
		}
	}
	return time.Time{}
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

// id names a state of the record: the first 16 bytes of the SHA-256 of its kind, its identity
// and the state.
func (r Record) id(status messages.State) sweep.ID {
	sum := sha256.Sum256([]byte(string(r.Kind) + "\x00" + r.identity + "\x00" + string(status)))
	return sweep.ID(sum[:16])
}

var seed = maphash.MakeSeed()

// key names the record whatever its state, within this process.
func (r Record) key() uint64 { return maphash.String(seed, string(r.Kind)+"\x00"+r.identity) }

// maxRecord is the maximum size of a record in an event: one that is too large must not stop
// the others.
const maxRecord = 64 << 10

// event is the event about the record's state.
func (r Record) event(match messages.TransactionMatch, now time.Time, withoutPayer bool) messages.Event {
	id, request, raw := r.id(r.Status), messages.Unmatched, r.Raw
	b := &messages.TransactionBody{Common: messages.Common{At: messages.Time{Time: now}}, EventID: hex.EncodeToString(id[:]), Kind: kinds[r.Kind], Status: string(r.Status),
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
