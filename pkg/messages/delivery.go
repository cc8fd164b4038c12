package messages

import (
	"bytes"
	"encoding/json"
	"strconv"

	"errand/internal/wire"
)

// SecretKeys find the rows of a call in the sending log, without an address.
type SecretKeys struct {
	ID   string `json:"id"`   // of the secret that made them
	Keys []byte `json:"keys"` // eight bytes each: of the sender, 0 if none is named, and of each recipient, in order
}

// The values of by that are no person.
const (
	BySendingLog      = "sending_log"      // evidence of resolved
	ByTransactionList = "transaction_list" // evidence of resolved
	ByCorrection      = "correction"       // reopened: published again with other contents
)

// SummaryBody is the body of mail.delivery.summary.<id>: how far the delivery of a
// request is. Each recipient counts once, by the last state seen.
type SummaryBody struct {
	Common
	Recipients      int  `json:"recipients"`
	Accepted        int  `json:"accepted"` // of them, by the service
	Delivered       int  `json:"delivered"`
	Deferred        int  `json:"deferred"`
	Bounced         int  `json:"bounced"`
	Unknown         int  `json:"unknown"`
	Queued          int  `json:"queued"` // accepted, and no row yet
	Final           bool `json:"final"`
	CompleteThrough Time `json:"complete_through"` // up to when the sending log has been published
}

// Watermark is the body of mail.log.watermark: every log entry up to a time has
// been published.
type Watermark struct {
	Common
	CompleteThrough Time   `json:"complete_through"`
	TotalRecord     int    `json:"total_record"`      // entries in the log, as the upstream counts
	New             int    `json:"new"`               // events since the watermark before
	By              Known  `json:"by"`                // how that is known
	Since           *Time  `json:"since,omitempty"`   // entries created before are not published, as the first start was configured
	Scanned         int    `json:"scanned,omitempty"` // entries read, of a log that takes long to read to its end
	Anchor          []byte `json:"anchor,omitempty"`  // the rows that the newest page had: eight bytes each
}

// Known is how a poller knows that the log was published up to a time.
type Known string

// The ways to know.
const (
	ByWholeLog    Known = "whole_log"    // it was read from its first row to its last
	ByNewestFirst Known = "newest_first" // it is in that order, and was read back to what was published before
)

// DeliveryBody is the body of mail.delivery.<status>: a state of a log entry.
type DeliveryBody struct {
	Common
	EventID string          `json:"event_id"`
	Entry   json.RawMessage `json:"entry"` // the log entry of the email document
	SMTP    SMTP            `json:"smtp"`
	Match   Match           `json:"match"`
	// Recipient goes into the header Errand-Recipient: <batch>.<recipient> where the
	// entry is matched, both as in the call's started event.
	Recipient string `json:"-"`
}

// SMTP is what the receiving server's reply says: RFC 5321 code, 0 when it
// has no code, and RFC 3463 enhanced code, "" when it has no such code.
type SMTP struct {
	Code     int    `json:"code"`
	Enhanced string `json:"enhanced"`
}

// Match ties a log entry to a request.
type Match struct {
	Confidence Confidence `json:"confidence"`
	Batch      int        `json:"batch,omitempty"`
	Candidates []string   `json:"candidates,omitempty"` // request ids, when ambiguous
}

// Confidence says how sure a match is.
type Confidence string

// The confidences.
const (
	MatchExact     Confidence = "exact"
	MatchUnique    Confidence = "unique"
	MatchAmbiguous Confidence = "ambiguous"
	MatchNone      Confidence = "none"
)

// encoded writes what encoding/json would, where the entry is valid JSON. It saves 3 µs of the 20 that a row takes.
func (b DeliveryBody) encoded() ([]byte, error) {
	j := b.appendTo(make([]byte, 0, 384+len(b.Entry)))
	j = appendMember(j, "event_id", b.EventID)
	j, err := appendRaw(append(j, `,"entry":`...), b.Entry)
	if err != nil {
		return nil, err
	}
	j = strconv.AppendInt(append(j, `,"smtp":{"code":`...), int64(b.SMTP.Code), 10)
	j = appendMember(j, "enhanced", wire.Cut(b.SMTP.Enhanced))
	j = wire.AppendString(append(j, `},"match":{"confidence":`...), string(b.Match.Confidence))
	if b.Match.Batch != 0 {
		j = strconv.AppendInt(append(j, `,"batch":`...), int64(b.Match.Batch), 10)
	}
	for i, id := range b.Match.Candidates {
		if i == 0 {
			j = append(j, `,"candidates":[`...)
		} else {
			j = append(j, ',')
		}
		j = wire.AppendString(j, id)
	}
	if len(b.Match.Candidates) > 0 {
		j = append(j, ']')
	}
	return append(j, "}}"...), nil
}

// appendRaw appends valid JSON without spaces.
func appendRaw(j []byte, raw json.RawMessage) ([]byte, error) {
	switch {
	case len(raw) == 0:
		return append(j, "null"...), nil
	case !spaced(raw):
		return append(j, raw...), nil
	}
	whole := bytes.NewBuffer(j)
	err := json.Compact(whole, raw)
	return whole.Bytes(), err
}

// spaced reports whether there is space between the tokens of valid JSON.
func spaced(row []byte) bool {
	quoted := false
	for i := 0; i < len(row); i++ {
		switch c := row[i]; {
		case c == '"':
			quoted = !quoted
		case c == '\\':
			i++
		case c <= ' ' && !quoted:
			return true
		}
	}
	return false
}

// appendTo appends the beginning of a body.
func (c Common) appendTo(j []byte) []byte {
	j = wire.AppendString(append(j, `{"request_id":`...), c.RequestID)
	j = c.At.append(append(j, `,"at":"`...))
	j = strconv.AppendInt(append(j, `","attempt":`...), int64(c.Attempt), 10)
	if c.Abridged {
		j = append(j, `,"abridged":true`...)
	}
	if c.Lane != "" {
		j = wire.AppendString(append(j, `,"lane":`...), c.Lane)
	}
	return j
}

// appendMember appends a comma and a member of an object.
func appendMember(j []byte, name, text string) []byte {
	j = append(append(append(j, `,"`...), name...), `":`...)
	return wire.AppendString(j, text)
}
