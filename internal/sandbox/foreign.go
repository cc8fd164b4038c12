package sandbox

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
	"strconv"
	"time"
)

// foreignRow is a row of the log about another program's mail.
type foreignRow struct {
	envelope, to string
	at, entered  int64  // time of its event and of its insertion, milliseconds since 1970
	state        string // "" when a caller inserted it
	text         []byte
}

// InsertLog inserts a row into the log, by its created_at: a JSON object with the fields of a log entry. Missing fields are
// made up. It replaces, in place, an inserted row with the same envelope_id and to.
func (s *Sandbox) InsertLog(entry []byte) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(entry, &fields); err != nil || fields == nil {
		return fmt.Errorf("sandbox: a log row is a JSON object: %w", cmp.Or(err, errors.New("it is null")))
	}
	var head struct {
		CreatedAt  time.Time `json:"created_at"`
		EnvelopeID string    `json:"envelope_id"`
		To         string    `json:"to"`
	}
	if err := json.Unmarshal(entry, &head); err != nil {
		return fmt.Errorf("sandbox: log row: %w", err)
	}
	o, now := &s.outbox, time.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.appendDue(now)
	if head.CreatedAt.IsZero() {
		head.CreatedAt = now
	}
	o.insert(fields, head.CreatedAt, foreignRow{envelope: head.EnvelopeID, to: head.To, entered: now.UnixMilli()})
	return nil
}

// insert inserts a row. The caller holds the lock.
func (o *outbox) insert(fields map[string]json.RawMessage, at time.Time, f foreignRow) {
	if f.envelope == "" {
		f.envelope = fmt.Sprintf("%011x%07x", at.UnixMilli(), mix(o.seed+uint64(len(o.foreign)))&0xfffffff)
	}
	complete(fields, at, f.envelope)
	f.at = at.UnixMilli()
	f.text, _ = json.Marshal(fields) // raw values of a parsed object marshal
	for i := range o.foreign {
		if old := &o.foreign[i]; old.envelope == f.envelope && old.to == f.to {
			old.text = f.text
			return
		}
	}
	o.foreign = append(o.foreign, f)
	added := row{message: foreignMessage, recipient: uint32(len(o.foreign) - 1)}
	place := sort.Search(len(o.log), func(i int) bool { return o.eventOf(o.log[i]) > at.UnixMilli() })
	o.log = slices.Insert(o.log, place, added)
	o.shuffled = shuffle{}
}

// unknownRecipient is the recipient of a row that does not name its recipient.
const unknownRecipient = "nobody@elsewhere.test"

// complete fills in the fields that an inserted row leaves out.
func complete(fields map[string]json.RawMessage, at time.Time, envelope string) {
	for name, value := range map[string]string{
		"created_at":  `"` + stamp(at.UnixMilli()) + `"`,
		"envelope_id": `"` + envelope + `"`,
		"interface":   `"api"`,
		"domain":      `"elsewhere.test"`,
		"from":        `"someone@elsewhere.test"`,
		"to":          `"` + unknownRecipient + `"`,
		"delivered":   `1`,
		"status":      `{"delivered":true,"ip":"192.0.2.26","mx":"mx1.elsewhere.test","response":"250 2.0.0 OK"}`,
	} {
		if fields[name] == nil {
			fields[name] = json.RawMessage(value)
		}
	}
}

// eventOf is the time of the row's event, in milliseconds since 1970.
func (o *outbox) eventOf(r row) int64 {
	if r.message != foreignMessage {
		return o.messages[r.message].eventAt(int(r.recipient))
	}
	return o.foreign[r.recipient].at
}

// lostRow is a row that was removed from the log.
type lostRow struct {
	row
	at int64 // when it was removed, milliseconds since 1970
}

// churn changes the log before a page is served, as the settings say. The caller holds the lock.
func (o *outbox) churn(v *Settings, now time.Time) {
	if o.draw() < v.LogLosses && len(o.log) > 0 {
		at := int(o.draw() * float64(len(o.log)))
		o.lost = append(o.lost, lostRow{o.log[at], now.UnixMilli()})
		o.log = slices.Delete(o.log, at, at+1)
		o.shuffled = shuffle{}
	}
	if o.draw() < v.LogLate {
		late := time.Duration(o.draw() * float64(v.LogLateBy))
		o.insert(map[string]json.RawMessage{}, now.Add(-late), foreignRow{state: Delivered, entered: now.UnixMilli()})
	}
}

// draw returns the log's next random number, at least 0 and less than 1.
func (o *outbox) draw() float64 {
	o.drawn++
	return float64(mix(o.seed^mix(o.drawn))>>1) / (math.MaxInt64 + 1.0)
}

// rowForms are the forms of the two fields of a row that the documents show in more than one form.
type rowForms struct{ status, delivered uint64 }

// formsOf returns the forms of a row: the same each time, whatever its state.
func (o *outbox) formsOf(r row, v *Settings) rowForms {
	if !v.LogForms {
		return rowForms{}
	}
	drawn := mix(o.seed ^ r.key())
	return rowForms{status: drawn % 3, delivered: drawn / 3 % 3}
}

// The other forms; 0 is the document's.
const (
	asText  = 1 // status: JSON in a string
	leftOut = 2 // status: left out, of a delivered row only
	asDigit = 1 // delivered: "1" or "0"
	asBool  = 2 // delivered: true or false
)

func (r row) key() uint64 { return uint64(r.message)<<32 | uint64(r.recipient) }

// of are the two fields: delivered as a number and status as an object, unless f says otherwise.
func (f rowForms) of(delivered bool, status json.RawMessage) []any {
	number := 0
	if delivered {
		number = 1
	}
	fields := []any{"delivered", number}
	switch f.delivered {
	case asDigit:
		fields[1] = strconv.Itoa(number)
	case asBool:
		fields[1] = delivered
	}
	switch {
	case f.status == leftOut && delivered:
		return fields
	case f.status == asText:
		return append(fields, "status", string(status))
	}
	return append(fields, "status", status)
}
