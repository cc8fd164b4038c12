package poll

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"time"

	"errand/pkg/clients/mail"
	"errand/pkg/messages"
)

// ID names one state of one row: the first 16 bytes of the SHA-256 of
//
//	envelope_id NUL to NUL status
//
// with the domain of to in lower case. A row without an envelope_id, or one that
// is not an object, has its bytes in place of the first two.
type ID [16]byte

// String is the id as it is written in events: 32 hex digits.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// ParseID reads an id as String writes it.
func ParseID(text string) (id ID, ok bool) {
	if len(text) != hex.EncodedLen(len(id)) {
		return ID{}, false
	}
	_, err := hex.Decode(id[:], []byte(text))
	return id, err == nil
}

func idOf(e mail.Entry, status messages.State) ID {
	var room [192]byte
	text := room[:0]
	if e.EnvelopeID == "" {
		text = append(text, e.Raw...)
	} else {
		text = append(text, e.EnvelopeID...)
		text = append(text, 0)
		at := strings.LastIndexByte(e.To, '@') + 1
		text = append(text, e.To[:at]...)
		text = append(text, strings.ToLower(e.To[at:])...)
	}
	text = append(text, 0)
	text = append(text, status...)
	sum := sha256.Sum256(text)
	return ID(sum[:16])
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

// eventOf is the event about a row and its state.
func eventOf(e mail.Entry, id ID, status messages.State, reply messages.SMTP, now time.Time) messages.Event {
	raw := e.Raw
	if len(raw) > longestEntry {
		raw, _ = json.Marshal(map[string]any{ // strings, a bool and a time always marshal
			"created_at": e.CreatedAt, "envelope_id": messages.Cut(e.EnvelopeID), "from": messages.Cut(e.From), "to": messages.Cut(e.To),
			"status": map[string]any{"delivered": e.Delivered, "response": messages.Cut(e.Response)},
		})
	}
	return messages.Event{Operation: messages.Delivery, State: status, ID: messages.Unmatched, Body: &messages.DeliveryBody{
		Common:  messages.Common{At: messages.Time{Time: now}},
		EventID: id.String(),
		Entry:   raw,
		SMTP:    reply,
		Match:   messages.Match{Confidence: messages.MatchNone},
	}}
}

// parseReply finds the reply code and the enhanced status code in the reply of a
// receiving server, which may be quoted in a message of the sending server:
//
//	250 2.0.0 OK    550-5.1.1 No such user    host mx.test said: 451 #4.7.1 later
func parseReply(text string) messages.SMTP {
	code, rest := replyCode(text)
	trimmed := strings.TrimLeft(rest, " -#")
	enhanced := enhancedAt(trimmed)
	for at := 0; enhanced == "" && code != 0 && at < len(rest); at++ { // anywhere else its class must be that of the code
		if isDigit(rest[at]) && (at == 0 || !isDigit(rest[at-1]) && rest[at-1] != '.') && int(rest[at]-'0') == code/100 {
			enhanced = enhancedAt(rest[at:])
		}
	}
	return messages.SMTP{Code: code, Enhanced: enhanced}
}

// replyCode finds a reply code at the start, or after a colon, a bracket or a quotation
// mark.
func replyCode(text string) (code int, rest string) {
	for at := 0; at+3 <= len(text); at++ {
		if at > 0 && !strings.ContainsRune(` :("[`, rune(text[at-1])) {
			continue
		}
		if at > 0 && text[at-1] == ' ' {
			if before := strings.TrimRight(text[:at], " "); before != "" && before[len(before)-1] != ':' {
				continue
			}
		}
		c := text[at : at+3]
		if (c[0] != '2' && c[0] != '4' && c[0] != '5') || c[1] < '0' || c[1] > '5' || !isDigit(c[2]) {
			continue
		}
		if end := at + 3; end < len(text) && text[end] != ' ' && text[end] != '-' && text[end] != '\r' && text[end] != '\n' {
			continue
		}
		return int(c[0]-'0')*100 + int(c[1]-'0')*10 + int(c[2]-'0'), text[at+3:]
	}
	return 0, text
}

// enhancedAt is the enhanced code at the beginning of text, or "": class 2, 4 or 5, then
// twice a dot and one to three digits.
func enhancedAt(text string) string {
	if text == "" || text[0] != '2' && text[0] != '4' && text[0] != '5' {
		return ""
	}
	at := 1
	for range 2 {
		if at >= len(text) || text[at] != '.' {
			return ""
		}
		at++
		first := at
		for at < len(text) && isDigit(text[at]) {
			at++
		}
		if at == first || at-first > 3 {
			return ""
		}
	}
	if at < len(text)-1 && text[at] == '.' && isDigit(text[at+1]) { // an address such as 5.1.1.7
		return ""
	}
	return text[:at]
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
