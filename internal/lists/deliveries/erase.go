package deliveries

import (
	"encoding/hex"
	"encoding/json"

	"errand/pkg/clients/mail"
)

// IDsOf are the ids of all events that there can be about a row, by the row as an event has it:
// whoever erases these has to keep them, so that the row is not published again. None: it
// cannot be told.
func IDsOf(entry json.RawMessage) (ids []string) {
	var row struct {
		EnvelopeID string `json:"envelope_id"`
		To         string `json:"to"`
	}
	if json.Unmarshal(entry, &row) != nil || row.EnvelopeID == "" {
		return nil
	}
	for _, state := range states[delivered:] {
		id := idOf(mail.Entry{EnvelopeID: row.EnvelopeID, To: row.To}, state)
		ids = append(ids, hex.EncodeToString(id[:]))
	}
	return ids
}

// erase forgets what is to be reported of a request whose recipients were erased. Rows that
// belong to it are published without what they say of them.
func (l *Log) erase(id string) {
	l.erased[id] = struct{}{}
	delete(l.open, id)
	delete(l.dirty, id)
}
