package messages

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Event is one thing that happened to a request.
type Event struct {
	Operation Operation
	State     State
	ID        string // the request id; for Batch a BatchID; "" for Log
	Body      Body
}

// Body is what an event says. Every body embeds Common.
type Body interface{ Head() *Common }

// Common is what every event body begins with.
type Common struct {
	RequestID string `json:"request_id"`
	At        Time   `json:"at"`
	// Attempt is the number of submissions made so far, look-ups not counted;
	// a started event counts the one it announces.
	Attempt int `json:"attempt"`
	// Abridged: parts were left out, since the whole is larger than the servers
	// take. See Abridge.
	Abridged bool `json:"abridged,omitempty"`
}

// Head returns c itself, so that the program that stores an event can fill it in.
func (c *Common) Head() *Common { return c }

// Subject is the subject the event is stored on.
func (e Event) Subject() string { return e.Operation.Subject(e.State, e.ID) }

// Type is the CloudEvents type: the subject without the id.
func (e Event) Type() string { return e.Operation.Subject(e.State, "") }

// RequestID is the id of the request the event belongs to, without the number
// of a batch.
func (e Event) RequestID() string {
	id, _, _ := strings.Cut(e.ID, ".")
	return id
}

// Headers sets the CloudEvents 1.0 headers of binary mode and the content type in
// dst; other headers in dst are left alone. id is the ce-id and must be the same
// whenever the same event is published again; a caller that wants it for a Nats-Msg-Id too
// sets that. ce-subject and ce-time are left out where the event has no
// request or no time. Of deliveries, written by the thousand, only ce-id, ce-type
// and the content type are set. Values never hold control characters.
func (e Event) Headers(dst map[string][]string, source, id string) {
	values := make([]string, 0, 7)
	set := func(name, value string) {
		values = append(values, Cut(value))
		n := len(values)
		dst[name] = values[n-1 : n : n]
	}
	set("ce-id", id)
	set("ce-type", e.Type())
	set("content-type", "application/json")
	if e.Operation == Delivery {
		return
	}
	set("ce-specversion", "1.0")
	set("ce-source", source)
	if request := e.RequestID(); request != "" {
		set("ce-subject", request)
	}
	if e.Body == nil {
		return
	}
	if at := e.Body.Head().At; !at.IsZero() {
		set("ce-time", at.String())
	}
}

// Encode is the body as compact JSON. Texts of others in it are cut to 500
// characters; <, > and & stay as they are, unlike with json.Marshal.
func (e Event) Encode() ([]byte, error) {
	data, err := encodeBody(e.Body)
	if err != nil {
		return nil, fmt.Errorf("messages: encode %s: %w", e.Type(), err)
	}
	return data, nil
}

func encodeBody(b Body) ([]byte, error) {
	// Called directly, a MarshalJSON is not scanned a second time.
	if m, ok := b.(json.Marshaler); ok {
		return m.MarshalJSON()
	}
	return marshal(b)
}

// marshal is json.Marshal without the escapes meant for HTML.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// DecodeEvent reads an event body written by these programs back into a pointer
// to its struct. Fields it does not know are ignored: a newer program may have
// written it. Errors are plain, never *Invalid, and quote nothing of the event.
func DecodeEvent(data []byte, into any) error {
	if json.Unmarshal(data, into) != nil {
		return errEvent
	}
	return nil
}

var errEvent = errors.New("messages: an event's body cannot be read")

// Time is a time.Time written as RFC 3339 in UTC with milliseconds.
type Time struct{ time.Time }

// String is the time as events and headers have it.
func (t Time) String() string { return string(t.append(make([]byte, 0, 32))) }

// append is AppendFormat, which knows a layout with milliseconds not half as well.
func (t Time) append(b []byte) []byte {
	at := t.UTC()
	b = bytes.TrimSuffix(at.AppendFormat(b, time.RFC3339), []byte("Z"))
	ms := at.Nanosecond() / int(time.Millisecond)
	return append(b, '.', byte('0'+ms/100), byte('0'+ms/10%10), byte('0'+ms%10), 'Z')
}

// MarshalJSON writes a JSON string.
func (t Time) MarshalJSON() ([]byte, error) {
	b := append(make([]byte, 0, len(`"2006-01-02T15:04:05.000Z"`)), '"')
	return append(t.append(b), '"'), nil
}

// UnmarshalJSON reads any RFC 3339 time that can be written in UTC; null leaves t alone.
func (t *Time) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		return nil
	}
	if err := t.Time.UnmarshalJSON(data); err != nil {
		return err
	}
	if t.Time = t.UTC(); !hasYear(t.Time) {
		return errEvent
	}
	return nil
}

// hasYear says whether a time can be written in RFC 3339: its zone may have taken it
// out of the years 0 to 9999.
func hasYear(t time.Time) bool { return t.Year() >= 0 && t.Year() <= 9999 }

// maxText is the longest text of others that an event or a header carries, in
// characters.
const maxText = 500

// Cut makes s fit for an event or a header: at most 500 characters, valid
// UTF-8, control characters made spaces.
func Cut(s string) string { return cut(s, maxText) }

func cut(s string, limit int) string {
	if len(s) <= limit && isPlain(s) {
		return s
	}
	var b strings.Builder
	n := 0
	for _, r := range s { // a broken byte comes out as U+FFFD
		if n == limit {
			break
		}
		if isControl(r) {
			r = ' '
		}
		b.WriteRune(r)
		n++
	}
	return b.String()
}

// isPlain says whether s is printable ASCII.
func isPlain(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] >= utf8.RuneSelf-1 {
			return false
		}
	}
	return true
}

// isControl covers the C0 and C1 controls and Unicode's two line separators.
func isControl(r rune) bool {
	return unicode.IsControl(r) || r == '\u2028' || r == '\u2029'
}
