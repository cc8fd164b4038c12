package messages

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"errand/internal/wire"
)

// Request is an EnrollRequest, a TransactionsRequest, a SendRequest or an AccountRequest. json.Marshal makes what is published on
// Operation().Requested().
type Request interface{ Operation() Operation }

// Operation is Enroll.
func (EnrollRequest) Operation() Operation { return Enroll }

// Operation is Transactions.
func (TransactionsRequest) Operation() Operation { return Transactions }

// Operation is Send.
func (SendRequest) Operation() Operation { return Send }

// Operation is Account.
func (AccountRequest) Operation() Operation { return Account }

// Requests are the operations that can be requested.
var Requests = []Operation{Enroll, Transactions, Send, Account}

// Decode reads and checks the body of a request; recipients are not judged. The error is an *Invalid; the request then holds the
// rest.
func Decode[R EnrollRequest | TransactionsRequest | SendRequest | AccountRequest](data []byte) (r R, meta Meta, err error) {
	switch r := any(&r).(type) {
	case *EnrollRequest:
		r.OnUnknown = OnUnknownReport
		meta, err = decode(data, enrollFields, r)
	case *TransactionsRequest:
		meta, err = decode(data, transactionsFields, r)
	case *SendRequest:
		r.OnUnknown = OnUnknownReport
		meta, err = decode(data, sendFields, r, oneList)
	case *AccountRequest:
		meta, err = decode(data, accountFields, r)
	}
	return r, meta, err
}

// Check is Decode by operation; one without requests is an *Invalid too.
func Check(op Operation, data []byte) (meta Meta, err error) {
	switch op {
	case Enroll:
		_, meta, err = Decode[EnrollRequest](data)
	case Transactions:
		_, meta, err = Decode[TransactionsRequest](data)
	case Send:
		_, meta, err = Decode[SendRequest](data)
	case Account:
		_, meta, err = Decode[AccountRequest](data)
	default:
		err = &Invalid{Fields: map[string][]string{"body": {"is of an operation that takes no requests"}}}
	}
	return meta, err
}

// Version is raised with every field or value of a request that older programs refuse; they leave such requests to newer ones.
const Version = 3

// Meta is what is known of a request's body whether it is valid or not.
type Meta struct {
	RequestID           string    // "" when the body names none that fits
	Fingerprint         string    // SHA-256, in hex, of the body as JSON with sorted keys and without request_id; "" when it is no JSON object
	NotBefore, GiveUpAt time.Time // zero where the body names none that can be read
}

// ID is the id of a request: its body's, or else its Nats-Msg-Id; "" if neither fits, or err says that the body is not one to go
// by.
func (m Meta) ID(msgID string, err error) string {
	invalid, ok := errors.AsType[*Invalid](err)
	switch {
	case m.RequestID != "":
		return m.RequestID
	case err != nil && !ok, ok && (m.Fingerprint == "" || invalid.Fields["request_id"] != nil), !ValidID(msgID):
		return ""
	}
	return msgID
}

// FingerprintOf is the Fingerprint, or else, of anything but a JSON object, the SHA-256 of its bytes.
func (m Meta) FingerprintOf(data []byte) string {
	if m.Fingerprint != "" {
		return m.Fingerprint
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// Invalid is the error of a request that breaks the rules. Fields maps each faulty field, or "body", to its faults. It holds no
// value.
type Invalid struct{ Fields map[string][]string }

// Error lists fields and rules, by field.
func (e *Invalid) Error() string {
	var b strings.Builder
	b.WriteString("invalid request")
	sep := ": "
	for _, name := range slices.Sorted(maps.Keys(e.Fields)) {
		b.WriteString(sep)
		b.WriteString(name)
		b.WriteString(" ")
		b.WriteString(strings.Join(e.Fields[name], ", "))
		sep = "; "
	}
	return b.String()
}

// CheckTimes checks not_before and give_up_at of a request that was published then; kept is how long events are, 0 for ever. The
// error is an *Invalid.
func CheckTimes(m Meta, published time.Time, kept time.Duration) error {
	faults := map[string][]string{}
	from, what := published, "the request was published"
	check := func(field string, at time.Time, longest time.Duration) {
		if last := from.Add(longest); at.After(last) {
			n, unit := longest.Hours(), "hours"
			if n >= 48 {
				n, unit = n/24, "days"
			}
			faults[field] = []string{fmt.Sprintf("must be at most %g %s after %s: not after %s", n, unit, what, Time{last})}
		}
	}
	check("not_before", m.NotBefore, wire.Bounded(wire.MaxNotBefore, kept))
	if m.NotBefore.After(published) {
		from, what = m.NotBefore, "not_before"
		if !m.GiveUpAt.IsZero() && !m.GiveUpAt.After(from) {
			faults["give_up_at"] = []string{"must be after not_before"}
		}
	}
	if check("give_up_at", m.GiveUpAt, wire.MaxGiveUp(kept)); len(faults) == 0 {
		return nil
	}
	return &Invalid{Fields: faults}
}
