package messages

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"errand/internal/wire"
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
	Attempt   int    `json:"attempt"`            // submissions made so far, look-ups not counted; started counts the one it announces
	Abridged  bool   `json:"abridged,omitempty"` // parts were left out: the whole is larger than the servers take
	Lane      string `json:"lane,omitempty"`     // that the request was published to, in started, deferred and final events; "" for DefaultLane
}

// Head returns c, which programs fill in.
func (c *Common) Head() *Common { return c }

// Subject is the subject the event is stored on.
func (e Event) Subject() string { return e.Operation.Subject(e.State, e.ID) }

// Type is the CloudEvents type: the subject without the id.
func (e Event) Type() string { return e.Operation.Subject(e.State, "") }

// RequestID is the ID, without the number of a batch.
func (e Event) RequestID() string {
	id, _, _ := strings.Cut(e.ID, ".")
	return id
}

// Headers sets the CloudEvents 1.0 headers and the content type in dst; id is the ce-id, the same whenever the event is published
// again. Deliveries have ce-id, ce-type and the content type alone.
func (e Event) Headers(dst map[string][]string, source, id string) {
	values := make([]string, 0, 7)
	set := func(name, value string) {
		values = append(values, wire.Cut(value))
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

// Encode is the body as it is published: texts of others are cut to 500 characters.
func (e Event) Encode() ([]byte, error) {
	encode := func() ([]byte, error) { return wire.Marshal(e.Body) }
	if b, ok := e.Body.(interface{ encoded() ([]byte, error) }); ok {
		encode = b.encoded
	}
	data, err := encode()
	if err != nil {
		return nil, fmt.Errorf("messages: encode %s: %w", e.Type(), err)
	}
	return data, nil
}

// DecodeEvent reads an event's body into a pointer to its struct. Fields that it does not know are ignored. The error quotes
// nothing.
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

// UnmarshalJSON reads any RFC 3339 time; null leaves t alone.
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

// FailedBody is the body of every failed but mail.send.failed.
type FailedBody struct {
	Common
	Reason        Reason              `json:"reason"`
	Message       string              `json:"message"`
	HTTPStatus    int                 `json:"http_status"` // 0 where no call was made or none was answered
	Fields        map[string][]string `json:"fields"`      // what is wrong with a field of the request
	OrderNumber   string              `json:"order_number,omitempty"`
	ConflictsWith string              `json:"conflicts_with,omitempty"`
	Fingerprint   string              `json:"fingerprint"`
	AfterUnknown  bool                `json:"after_unknown,omitempty"`
}

// encoded cuts the texts and writes nil fields as {}.
func (b FailedBody) encoded() ([]byte, error) {
	b.Message, b.OrderNumber, b.ConflictsWith = wire.Cut(b.Message), wire.Cut(b.OrderNumber), wire.Cut(b.ConflictsWith)
	b.Fields = cutFields(b.Fields)
	if b.Fields == nil {
		b.Fields = map[string][]string{}
	}
	return wire.Marshal(b)
}

// DeferredBody is the body of mandate.enroll.deferred and mail.send.deferred:
// nothing happened upstream, and it is tried again from NotBefore on.
type DeferredBody struct {
	Common
	Reason       Reason `json:"reason"`
	Message      string `json:"message"`
	HTTPStatus   int    `json:"http_status"` // 0 without an answer
	NotBefore    Time   `json:"not_before"`
	AfterUnknown bool   `json:"after_unknown,omitempty"`
	HeldCount    int    `json:"held_count,omitempty"` // how often it was held while others succeeded in between
	Fingerprint  string `json:"fingerprint"`
}

// encoded cuts the message.
func (b DeferredBody) encoded() ([]byte, error) {
	b.Message = wire.Cut(b.Message)
	return wire.Marshal(b)
}

// maxFieldsSize is how many octets of fields an event carries: it must fit one
// message.
const maxFieldsSize = 64 << 10

// cutFields copies fields with every text cut, and no more of them than fit an
// event: it may be the upstream's map as well as ours.
func cutFields(fields map[string][]string) map[string][]string {
	if fields == nil {
		return nil
	}
	out := make(map[string][]string, len(fields))
	size := 0
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		short := wire.Cut(name)
		rules := []string{} // never null
		for _, rule := range fields[name] {
			if size < maxFieldsSize {
				rules = append(rules, wire.Cut(rule))
				size += len(rules[len(rules)-1])
			}
		}
		if size += len(short); size > maxFieldsSize {
			break
		}
		out[short] = rules
	}
	return out
}

// listed turns a missing list into an empty one: JSON null says "unknown".
func listed(list []json.RawMessage) []json.RawMessage {
	if list == nil {
		return []json.RawMessage{}
	}
	return list
}

// ReopenedBody is the body of an operation's reopened: the request was corrected, or a person had it run again.
type ReopenedBody struct {
	Common
	By           string       `json:"by"` // ByCorrection, or who did it
	Why          string       `json:"why,omitempty"`
	Was          PriorOutcome `json:"was"`
	AfterUnknown bool         `json:"after_unknown,omitempty"` // a call of unknown fate was made before
	Batches      []int        `json:"batches,omitempty"`       // that may be sent, from 1; empty: all neither accepted nor of unknown fate
	BatchSize    int          `json:"batch_size,omitempty"`    // how a message was cut, though the event that said so is gone
	Fingerprint  string       `json:"fingerprint"`             // of the contents that run from now on
}

// PriorOutcome is what a request had ended as.
type PriorOutcome struct {
	State  State  `json:"state"`            // of a reopened one failed, uncertain or partial
	Reason Reason `json:"reason,omitempty"` // none for partial
}

// encoded cuts the texts.
func (b ReopenedBody) encoded() ([]byte, error) {
	b.By, b.Why = wire.Cut(b.By), wire.Cut(b.Why)
	return wire.Marshal(b)
}

// ErasedBody is the body of what stays when a person's data was erased, so that no id is run again and no row published again.
type ErasedBody struct {
	Common
	Was     *PriorOutcome `json:"was,omitempty"`      // the outcome that the request had; nil for batches and rows
	EventID string        `json:"event_id,omitempty"` // of the event about the erased row
}
