package deliveries

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"errand/internal/lists/sweep"
	"errand/internal/wire/mailkey"
	"errand/pkg/clients/mail"
	"errand/pkg/messages"
)

// identity is what a row is known by, whatever its state: envelope_id NUL to, with the domain of to in lower case. A
// row without an envelope_id, or one that is not an object, is known by its bytes.
func identity(text []byte, e mail.Entry) []byte {
	if e.EnvelopeID == "" {
		return append(text, e.Raw...)
	}
	at := strings.LastIndexByte(e.To, '@') + 1
	text = append(text, e.EnvelopeID+"\x00"...)
	text = append(text, e.To[:at]...)
	return append(text, strings.ToLower(e.To[at:])...)
}

// idOf names a state of a row: the first 16 bytes of the SHA-256 of its identity, the last XOR the number of the state.
func idOf(e mail.Entry, s status) sweep.ID {
	var room [192]byte
	sum := sha256.Sum256(identity(room[:0], e))
	id := sweep.ID(sum[:16])
	id[15] ^= byte(s)
	return id
}

// IDsOf returns the ids of all events that there can be about a row, which is given as in its event. Events that are
// erased must leave these ids behind, or the row is published again. It returns nil if the row cannot be read.
func IDsOf(entry json.RawMessage) (ids []string) {
	if !json.Valid(entry) {
		return nil
	}
	row := mail.ReadEntry(entry)
	for s := delivered; s < statuses && row.EnvelopeID != ""; s++ {
		id := idOf(row, s)
		ids = append(ids, hex.EncodeToString(id[:]))
	}
	return ids
}

// rowsOf are the rows of a page. One whose own time is missing, or more than a day after now, takes a neighbour's.
func rowsOf(entries []mail.Entry, now time.Time) []sweep.Row[mail.Entry] {
	rows := make([]sweep.Row[mail.Entry], len(entries))
	hasTime := func(e mail.Entry) bool { return !e.CreatedAt.IsZero() && !e.CreatedAt.After(now.Add(24*time.Hour)) }
	var at time.Time
	if first := slices.IndexFunc(entries, hasTime); first >= 0 {
		at = entries[first].CreatedAt
	}
	for i, e := range entries {
		state := statusOf(e, e.Reply())
		if hasTime(e) {
			at = e.CreatedAt
		}
		final := state == messages.Delivered || state == messages.Bounced
		rows[i] = sweep.Row[mail.Entry]{ID: idOf(e, statusIn(state)), At: at, Final: final, Item: e}
	}
	return rows
}

// statusOf is the state of a row. Failed deliveries are not shown by the upstream; assumed, by RFC 5321 and RFC 3463.
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

// row is what a match needs of a row of the sending log: times in milliseconds since 1970 by our clock, 0 if unknown.
type row struct {
	to, from party
	accepted int64 // when the upstream accepted the message
	created  int64 // when the row was created
	seen     int64 // when it was read
	id       uint64
}

// skew is how far off the upstream's clock may have been when the row was made, by what was measured when it was read.
func (r row) skew() int64 {
	return maxSkew + max(0, r.seen-cmp.Or(r.accepted, r.created, r.seen))/driftTime
}

// party is the keys of an address that the event of a call may have, one of each secret; 0 where there are fewer.
type party [maxSecrets]mailkey.Key

func (p party) is(k mailkey.Key) bool { return k != 0 && slices.Contains(p[:], k) }

// rowOf reads a row seen now. offset is how far the upstream's clock is ahead; too large a one says nothing about times.
func rowOf(e mail.Entry, now time.Time, offset time.Duration) row {
	r := row{seen: now.UnixMilli()}
	if offset.Abs() > time.Hour { // then the answers' Date is as likely to be wrong as the rows' times
		return r
	}
	created, accepted := e.CreatedAt, envelopeTime(e.EnvelopeID)
	switch {
	case !accepted.IsZero() && !accepted.After(created.Add(time.Minute)) && !accepted.Before(created.Add(-maxQueueTime)):
		r.accepted = accepted.Add(-offset).UnixMilli()
	case accepted.Sub(now).Abs() < maxQueueTime: // hardly by chance: the row's own time is wrong, by a time zone perhaps
		created = accepted
	case created.After(now.Add(24 * time.Hour)):
		created = time.Time{}
	}
	if !created.IsZero() {
		r.created = created.Add(-offset).UnixMilli()
	}
	return r
}

// acceptedDigits is the number of leading digits of an envelope_id that are the time of acceptance: milliseconds since
// 1970, in hexadecimal. The upstream does not document it; observed and assumed.
const acceptedDigits = 11

// envelopeTime reads the time of acceptance from an envelope_id; zero if it has none.
func envelopeTime(envelope string) time.Time {
	id, err := hex.DecodeString(envelope)
	if err != nil || len(id) != 9 {
		return time.Time{}
	}
	return time.UnixMilli(int64(binary.BigEndian.Uint64(id) >> (64 - 4*acceptedDigits)))
}
