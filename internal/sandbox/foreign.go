package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
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
	var head struct {
		CreatedAt  time.Time `json:"created_at"`
		EnvelopeID string    `json:"envelope_id"`
		To         string    `json:"to"`
	}
	if err := errors.Join(json.Unmarshal(entry, &fields), json.Unmarshal(entry, &head)); err != nil {
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
	o.shuffled = nil
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
		o.shuffled = nil
	}
	if o.draw() < v.LogLate {
		late := time.Duration(o.draw() * float64(v.LogLateBy))
		o.insert(map[string]json.RawMessage{}, now.Add(-late), foreignRow{state: Delivered, entered: now.UnixMilli()})
	}
}

// draw returns the log's next random number, at least 0 and less than 1.
func (o *outbox) draw() float64 {
	o.drawn++
	return fraction(mix(o.seed ^ mix(o.drawn)))
}

func (r row) key() uint64 { return uint64(r.message)<<32 | uint64(r.recipient) }

// result are delivered as a number and status as an object, or with LogForms each in any form that the documents show, which a
// row keeps.
func (o *outbox) result(r row, v *Settings, delivered bool, status json.RawMessage) []any {
	number := 0
	if delivered {
		number = 1
	}
	fields := []any{"delivered", number, "status", status}
	if !v.LogForms {
		return fields
	}
	drawn := mix(o.seed ^ r.key())
	switch drawn / 3 % 3 {
	case 1:
		fields[1] = strconv.Itoa(number)
	case 2:
		fields[1] = delivered
	}
	switch {
	case drawn%3 == 1:
		fields[3] = string(status)
	case drawn%3 == 2 && delivered:
		return fields[:2]
	}
	return fields
}
