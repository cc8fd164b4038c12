package sandbox

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sort"
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
// made up, unless verbatim is set. It replaces, in place, an inserted row with the same envelope_id and to.
func (s *Sandbox) InsertLog(entry []byte, verbatim bool) error {
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
	o.insert(fields, head.CreatedAt, foreignRow{envelope: head.EnvelopeID, to: head.To, entered: now.UnixMilli()}, verbatim)
	return nil
}

// insert inserts a row. The caller holds the lock.
func (o *outbox) insert(fields map[string]json.RawMessage, at time.Time, f foreignRow, verbatim bool) {
	if !verbatim {
		if f.envelope == "" {
			f.envelope = fmt.Sprintf("%011x%07x", at.UnixMilli(), mix(o.seed+uint64(len(o.foreign)))&0xfffffff)
		}
		complete(fields, at, f.envelope)
	}
	f.at = at.UnixMilli()
	f.text, _ = json.Marshal(fields) // raw values of a parsed object marshal
	for i := range o.foreign {
		if old := &o.foreign[i]; f.envelope != "" && old.envelope == f.envelope && old.to == f.to {
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

// unknownRecipient is the recipient of a row that names none.
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
