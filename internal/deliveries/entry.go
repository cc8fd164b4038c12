package deliveries

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"hash/maphash"
	"strings"
	"time"

	"errand/internal/sweep"
	"errand/pkg/clients/mail"
	"errand/pkg/messages"
)

// identity is what a row is known by, whatever its state: envelope_id NUL to, with the
// domain of to in lower case. A row without an envelope_id, or one that is not an object,
// is known by its bytes.
func identity(text []byte, e mail.Entry) []byte {
	if e.EnvelopeID == "" {
		return append(text, e.Raw...)
	}
	text = append(text, e.EnvelopeID...)
	text = append(text, 0)
	at := strings.LastIndexByte(e.To, '@') + 1
	text = append(text, e.To[:at]...)
	return append(text, strings.ToLower(e.To[at:])...)
}

// idOf names a state of a row: the first 16 bytes of the SHA-256 of its identity, NUL and
// the state.
func idOf(e mail.Entry, state messages.State) sweep.ID {
	var room [192]byte
	text := append(identity(room[:0], e), 0)
	sum := sha256.Sum256(append(text, state...))
	return sweep.ID(sum[:16])
}

// rowID names a row, in every process.
func rowID(e mail.Entry) uint64 {
	id := idOf(e, "")
	return binary.BigEndian.Uint64(id[:])
}

var keySeed = maphash.MakeSeed()

// rowsOf are the rows of a page. One whose own time is missing, or more than a day after
// now, has that of a neighbour.
func rowsOf(entries []mail.Entry, now time.Time) []sweep.Row[mail.Entry] {
	rows := make([]sweep.Row[mail.Entry], len(entries))
	var room [192]byte
	var at time.Time
	for i, e := range entries {
		state := statusOf(e, parseReply(e.Response))
		if !e.CreatedAt.IsZero() && !e.CreatedAt.After(now.Add(24*time.Hour)) {
			at = e.CreatedAt
		}
		rows[i] = sweep.Row[mail.Entry]{ID: idOf(e, state), Key: maphash.Bytes(keySeed, identity(room[:0], e)), At: at,
			Final: state == messages.Delivered || state == messages.Bounced, Item: e}
	}
	for i := len(rows) - 2; i >= 0 && rows[0].At.IsZero(); i-- { // there is no neighbour before the first ones
		if rows[i].At.IsZero() {
			rows[i].At = rows[i+1].At
		}
	}
	return rows
}

// statusOf is the state of a row. The upstream shows no rows of failed deliveries;
// assumed, with the reply classes of RFC 5321 and RFC 3463.
func statusOf(e mail.Entry, reply messages.SMTP) messages.State {
	class := reply.Code / 100
	if class == 0 && reply.Enhanced != "" {
		class = int(reply.Enhanced[0] - '0')
	}
	switch {
	case e.Delivered && (class == 0 || class == 2):
		return messages.Delivered
	case !e.Delivered && class == 4:
		return messages.Deferred
	case !e.Delivered && class == 5:
		return messages.Bounced
	}
	return messages.Unknown // there is no reply, or it contradicts delivered
}

// longestEntry is the maximum size of the row in an event. A row with the document's
// fields has less than half a kilobyte; one that is too large must not stop the others.
const longestEntry = 64 << 10

// eventOf is the event about a row and its state, which id names, before it is matched.
func eventOf(e mail.Entry, id sweep.ID, now time.Time) messages.Event {
	reply, raw := parseReply(e.Response), e.Raw
	state := statusOf(e, reply)
	if len(raw) > longestEntry {
		raw, _ = json.Marshal(map[string]any{ // strings, a bool and a time always marshal
			"created_at": e.CreatedAt, "envelope_id": messages.Cut(e.EnvelopeID), "from": messages.Cut(e.From), "to": messages.Cut(e.To),
			"status": map[string]any{"delivered": e.Delivered, "response": messages.Cut(e.Response)},
		})
	}
	return messages.Event{Operation: messages.Delivery, State: state, ID: messages.Unmatched, Body: &messages.DeliveryBody{
		Common:  messages.Common{At: messages.Time{Time: now}},
		EventID: hex.EncodeToString(id[:]),
		Entry:   raw,
		SMTP:    reply,
	}}
}
